// Package policy is what the operator's policies say of plans: findings, how they
// combine, and which approvals satisfy the ones that hold a plan. It evaluates
// nothing: package guard judges the limits of a policy, and package review asks the
// policies that are programs.
//
// Start reading at Finding and Combine; Missing says what a held plan waits for.
package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Effect is what follows from a finding.
type Effect string

// The effects, from the mildest to the strictest.
const (
	Allow Effect = "allow" // a stack that waits for approvals needs none for this plan, unless another finding holds it
	Warn  Effect = "warn"
	Hold  Effect = "hold" // the plan needs an approval, in every mode
	Deny  Effect = "deny" // the plan must not be applied
)

// strictness orders effects. An effect that this release does not know is a hold.
func (e Effect) strictness() int {
	switch e {
	case "":
		return 0
	case Allow:
		return 1
	case Warn:
		return 2
	case Hold:
		return 3
	case Deny:
		return 4
	default:
		return 3
	}
}

// Compare orders effects from the mildest to the strictest.
func (e Effect) Compare(f Effect) int { return cmp.Compare(e.strictness(), f.strictness()) }

// The severities of findings, from the lowest to the highest. A finding may have none.
const (
	Low      = "low"
	Medium   = "medium"
	High     = "high"
	Critical = "critical"
)

// Severities lists the severities from the highest to the lowest, and "" for none.
func Severities() []string { return []string{Critical, High, Medium, Low, ""} }

// AddressesKept bounds Finding.Addresses.
const AddressesKept = 10

// FindingsKept bounds the findings of one verdict in the status of a stack. The record
// of the verdict has all of them.
const FindingsKept = 50

// Finding is what one rule of one policy says of a plan. Its text has no secrets.
type Finding struct {
	Policy    string    `json:"policy"` // ClusterPolicy/production, Policy/team-a/guards, or the annotation of the stack
	Rule      string    `json:"rule"`   // maxDestroys, or the id of a rule in Rego
	Effect    Effect    `json:"effect"`
	Severity  string    `json:"severity,omitempty"` // low, medium, high or critical
	Message   string    `json:"message"`
	Link      string    `json:"link,omitempty"`
	Addresses []string  `json:"addresses,omitempty"` // the first ten
	More      int       `json:"more,omitempty"`      // how many addresses there are besides
	Approval  *Approval `json:"approval,omitempty"`  // of Hold: who approves; nil: any user who may approve
	DryRun    bool      `json:"dryRun,omitempty"`    // it is shown and counted, and changes nothing
	Error     bool      `json:"error,omitempty"`     // the policy could not be evaluated: a hold or a deny, never a pass
}

// At returns the finding with the addresses it is about, cut to as many as are kept.
func (f Finding) At(addresses ...string) Finding {
	kept := min(len(addresses), AddressesKept)
	f.Addresses, f.More = slices.Clone(addresses[:kept]), len(addresses)-kept
	return f
}

// Counts is the effect of a finding on the plan. A dry run has none, and a policy that
// could not be evaluated holds at least.
func (f Finding) Counts() Effect {
	switch {
	case f.DryRun:
		return ""
	case f.Error && f.Effect.Compare(Hold) < 0:
		return Hold
	default:
		return f.Effect
	}
}

// Failed is the finding of a policy that could not be evaluated. It holds the plan; a policy
// may deny it instead, see OnError.
func Failed(policy, rule, message string) Finding {
	return Finding{Policy: policy, Rule: rule, Effect: Hold, Severity: High, Message: message, Error: true}
}

// OnError makes the findings of a policy that could not be evaluated as strict as the policy
// is then: it holds the plan, unless e is Deny. No finding becomes milder.
func OnError(e Effect, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		if f.Error && e == Deny {
			f.Effect, f.Approval = Deny, nil
		}
	}
}

// Stricter is a finding of a policy of the owner of a namespace, which can add limits and
// lift none: what it allows has no effect.
func Stricter(f Finding) Finding {
	if f.Effect == Allow {
		f.Effect, f.Message = Warn, "only a ClusterPolicy can allow a plan without an approval, so this has no effect: "+f.Message
	}
	return f
}

// Combine returns the effect of all findings together: the strictest one, and "" if none
// of them counts.
func Combine(findings []Finding) Effect {
	var strictest Effect
	for _, f := range findings {
		if e := f.Counts(); e.Compare(strictest) > 0 {
			strictest = e
		}
	}
	return strictest
}

// With returns the findings that have an effect, in their order.
func With(e Effect, findings []Finding) []Finding {
	var out []Finding
	for _, f := range findings {
		if f.Counts().Compare(e) == 0 {
			out = append(out, f)
		}
	}
	return out
}

// Sort orders findings: those that count before dry runs, the strictest first, then the
// most severe, then by policy, rule and message. The order is the same for the same
// findings.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			b.Counts().Compare(a.Counts()), b.Effect.Compare(a.Effect),
			cmp.Compare(slices.Index(Severities(), a.Severity), slices.Index(Severities(), b.Severity)),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message),
		)
	})
}

// Digest identifies the findings that an approver sees, as "sha256:…". Two verdicts with
// the same digest say the same. It is empty if no finding counts: dry runs are no part
// of a plan's identity.
func Digest(findings []Finding) string {
	var counting []Finding
	for _, f := range findings {
		if f.Counts() != "" {
			counting = append(counting, f)
		}
	}
	if len(counting) == 0 {
		return ""
	}
	Sort(counting)
	canonical, err := json.Marshal(struct {
		Format   string
		Findings []Finding
	}{"terrier.verdict/1", counting})
	if err != nil {
		panic("policy: encoding findings: " + err.Error()) // strings, numbers and booleans
	}
	h := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(h[:])
}

// Judge is a policy that judged a plan, and the digest of all that its judgement depends on
// beside the plan.
type Judge struct {
	Policy string `json:"policy"`
	Digest string `json:"digest"`
}

// Judgement is all that policies said of a plan. It is kept beside the plan.
type Judgement struct {
	Plan     string    `json:"plan"` // its digest
	By       string    `json:"by"`   // digest of all reviewers
	At       time.Time `json:"at"`
	Policies []Judge   `json:"policies"`
	Input    string    `json:"input,omitempty"` // digest of what they were shown
	Findings []Finding `json:"findings,omitempty"`

	// What all reviewers said together, webhooks too, and the name under which users saw the
	// plan then. Earlier releases kept neither.
	Outcome string `json:"outcome,omitempty"` // passed, allowed, held or refused
	Name    string `json:"name,omitempty"`
}

// ApprovalsKept bounds how many different approvals the findings of one verdict may ask for.
const ApprovalsKept = 20

// Bounded returns the findings, and one that denies the plan if they ask for more different
// approvals than ApprovalsKept: the status of a stack cannot have all of them, and a plan must
// not pass because one is missing there.
func Bounded(findings []Finding) []Finding {
	asks := map[string]string{}
	last := ""
	for _, f := range With(Hold, findings) {
		if key := f.asksFor(); asks[key] == "" {
			asks[key], last = f.Policy, f.Policy
		}
	}
	if len(asks) <= ApprovalsKept {
		return findings
	}
	return append(slices.Clone(findings), Finding{
		Policy: last, Rule: "approvals", Effect: Deny, Severity: High,
		Message: fmt.Sprintf("the policies of the stack ask for %d different approvals of this plan, and may ask for %d", len(asks), ApprovalsKept),
	})
}

// asksFor is the same for findings that ask for the same approval.
func (f Finding) asksFor() string {
	var a Approval
	if f.Approval != nil {
		a = *f.Approval
	}
	return a.key()
}

// Keep returns the findings that the status of a stack has, sorted, and how many there are
// besides: at most FindingsKept. Of the findings that hold a plan it keeps one for each
// approval that they ask for, as many as Bounded lets them: an approval must never be missing
// because there are many findings.
func Keep(findings []Finding) ([]Finding, int) {
	all := slices.Clone(findings)
	Sort(all)
	if len(all) <= FindingsKept {
		return all, 0
	}
	var first, rest []Finding
	seen := map[string]bool{}
	for i, f := range all {
		key := f.asksFor()
		switch effect := f.Counts().Compare(Hold); {
		case i == 0, effect == 0 && !seen[key] && len(first) <= ApprovalsKept:
			seen[key] = seen[key] || effect == 0
			first = append(first, f)
		default:
			rest = append(rest, f)
		}
	}
	kept := append(first, rest...)[:FindingsKept]
	Sort(kept)
	return kept, len(all) - len(kept)
}

// Text says what findings of an effect say, in one line: held by ClusterPolicy/production:
// maxDestroys: the plan destroys 3 resources, 0 are allowed.
func Text(e Effect, findings []Finding) string {
	const most = 3
	verb := "held by "
	switch e {
	case Deny:
		verb = "denied by "
	case Warn:
		verb = "warned of by "
	case Allow:
		verb = "allowed by "
	case Hold:
	}
	var all []string
	last, said := "", With(e, findings)
	for i, f := range said {
		if i == most {
			all = append(all, fmt.Sprintf("and %d more", len(said)-most))
			break
		}
		text := f.Rule + ": " + strings.TrimRight(f.Message, ". ")
		if f.Error {
			text = "could not be evaluated: " + text
		}
		if f.Policy != last {
			text = verb + f.Policy + ": " + text
		}
		last = f.Policy
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

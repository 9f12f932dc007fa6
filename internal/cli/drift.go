package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/drift/patch"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p decideCommands) drift() *cobra.Command {
	return group(&cobra.Command{
		Use:   "drift COMMAND",
		Short: "Show drift, and accept it",
		Long: `Drift is a difference between the configuration of a stack and what is really there.
There are two ways to end it. "terrier approve" enforces the configuration: the plan that
the drift check made is applied. "terrier drift accept" changes the configuration to what
is there.`,
		Example: `  terrier drift show network
  terrier drift accept network > drift.patch`,
		GroupID: groupDecide,
	}, p.driftShow(), p.driftAccept())
}

func (p decideCommands) driftShow() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "show STACK",
		Short: "Show what drifted, by resource and attribute",
		Long: `Shows what drifted: for each attribute the configured value, and the value that is
there. Sensitive values are masked. Attributes that a rule lets drift are listed as well.`,
		Example: `  terrier drift show network
  terrier drift show network -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			st, err := s.Get(ctx, key)
			if err != nil {
				return err
			}
			report := []drift.Resource{}
			if st.Drift != nil && st.Plan != nil {
				doc, err := s.Plan(ctx, key, st.Plan.Digest)
				if err != nil {
					return err
				}
				read, err := plan.ParseDocument(doc.Document)
				if err != nil {
					return err
				}
				report = drift.Report(read)
			}
			if p.structured(f, map[string]any{"report": report, "toleratedDrift": st.Tolerated}) {
				return nil
			}
			p.printDrift(st, report)
			return p.printNextCheck(ctx, s, key)
		}),
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p decideCommands) printDrift(st query.Stack, report []drift.Resource) {
	if st.Drift == nil {
		p.say("No drift of %s is known. To check it now: terrier replan %s\n", st.Key(), stateCommands(p).argument(st.Key()))
	}
	for _, r := range report {
		p.say("%s %s\n", r.Address, driftWords[r.How])
		for _, a := range r.Attributes {
			if a.Sensitive {
				p.say("  %s: sensitive, differs\n", a.Path)
				continue
			}
			p.say("  %s: configured %s, is %s\n", a.Path, driftValue(a.Configured), driftValue(a.Real))
		}
	}
	if t := st.Tolerated; t.Total() > 0 {
		p.say("Rules let %s drift:\n", t)
		for _, a := range t.Of {
			p.say("  %s\n", a)
		}
	}
	if st.Plan != nil {
		for _, text := range st.Plan.Besides() {
			for _, line := range wrap(text, 92) {
				p.say("%s\n", line)
			}
		}
	}
	if len(report) > 0 {
		of := stateCommands(p).argument(st.Key())
		p.say("\nTo enforce the configuration: terrier approve %s\nTo change the configuration to what is there: terrier drift accept %s\n", of, of)
	}
}

// printNextCheck says when drift is checked next, and why then.
func (p decideCommands) printNextCheck(ctx context.Context, s command.StackAPI, key query.Key) error {
	next, err := s.NextCheck(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil
	}
	if err != nil {
		return err
	}
	p.say("\n")
	if !next.Last.IsZero() {
		p.say("Last drift check: %s\n", p.at(next.Last))
	}
	if !next.Next.IsZero() {
		p.say("Next drift check: %s\n", p.at(next.Next))
	}
	for _, line := range wrap(next.Why, 92) {
		p.say("  %s\n", line)
	}
	return nil
}

// driftWords are how a resource drifted.
var driftWords = map[string]string{
	drift.Changed: "was changed", drift.Replaced: "was changed, and would be replaced", drift.Absent: "is not there", drift.Other: "differs",
}

func driftValue(v any) string {
	if v == nil {
		return "(none)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return ends(string(b), 120)
}

func (p decideCommands) driftAccept() *cobra.Command {
	var (
		order command.AcceptDriftOrder
		file  string
		hold  time.Duration
		dry   bool
	)
	c := &cobra.Command{
		Use:   "accept STACK",
		Short: "Change the configuration to what is there",
		Long: `Makes a change of the configuration after which its plan has no changes: the values
that are there take the place of the configured ones, and the block of a resource that is
gone is removed. The change is a unified diff for "git apply". It edits the files in place:
comments, order and formatting stay. A value that no literal of the configuration has is
named with its place.

The stack then waits for the change: for the time of --hold Terrier does not enforce
the configuration, also in a stack that is automatic. The object has the digest of this
drift, and the audit log has who accepted it. Other drift is not accepted.

With --branch the change is committed on top of the branch that the GitRepository of the
stack follows, and pushed as a new branch. The credentials are those of the Secret of the
GitRepository, or of --push-secret; you need the permission to read the Secret.`,
		Example: `  terrier drift accept network > drift.patch && git apply drift.patch
  terrier drift accept network --address aws_instance.web --attribute tags --ignore-changes
  terrier drift accept network --branch drift/network --reason 'resized in the incident 4711'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			order.HoldSeconds = int64(hold / time.Second)
			if order.Branch == "" && order.PushSecret != "" {
				return usage("--push-secret is for --branch")
			}
			if order.Branch != "" && (dry || file != "") {
				return usage("--branch pushes the change: leave --dry-run and --patch out")
			}
			if order.Branch != "" {
				return p.acceptOnBranch(ctx, s, key, order)
			}
			return p.acceptAsPatch(ctx, s, key, order, file, dry)
		}),
	}
	c.Flags().StringArrayVar(&order.Addresses, "address", nil, "accept the drift of the resource at this `address` (repeatable); all by default")
	c.Flags().StringArrayVar(&order.Attributes, "attribute", nil, "accept this `attribute`, as size or tags[\"a\"] (repeatable); all by default")
	c.Flags().BoolVar(&order.IgnoreChanges, "ignore-changes", false, "have the engine ignore the attributes from now on, in place of setting them")
	c.Flags().StringVar(&file, "patch", "", "write the change to this `file`; standard output by default")
	c.Flags().StringVar(&order.Branch, "branch", "", "commit the change, and push it as this new `branch`")
	c.Flags().StringVar(&order.PushSecret, "push-secret", "", "the `Secret` with the credentials for --branch, in the namespace of the GitRepository")
	c.Flags().StringVar(&order.Reason, "reason", "", "the reason, a `text` that the audit log keeps")
	c.Flags().DurationVar(&hold, "hold", 24*time.Hour, "how long Terrier waits for the change, up to 7 days")
	c.Flags().BoolVar(&dry, "dry-run", false, "only write the change, and accept nothing")
	return c
}

func (p decideCommands) acceptOnBranch(ctx context.Context, s command.StackAPI, key query.Key, order command.AcceptDriftOrder) error {
	done, err := s.AcceptDrift(ctx, key, order)
	if err != nil {
		return err
	}
	p.proposal(done.Edits, done.Open)
	p.say("Pushed %.12s as the branch %s. Merge it before %s.\n", done.Commit, done.Branch, p.at(done.Until))
	return nil
}

func (p decideCommands) acceptAsPatch(ctx context.Context, s command.StackAPI, key query.Key, order command.AcceptDriftOrder, file string, dry bool) error {
	proposed, err := s.ProposeDrift(ctx, key, order.DriftOrder)
	if err != nil {
		return err
	}
	p.proposal(proposed.Edits, proposed.Open)
	if proposed.Patch == "" {
		text := "no edit of the configuration accepts this drift, so nothing was accepted. The lines above say why"
		if !order.IgnoreChanges {
			text += ". To ignore the attributes: --ignore-changes"
		}
		return fault.New(fault.Invalid, "NothingEdited", errors.New(text))
	}
	if !dry {
		order.Digest = proposed.Digest
		done, err := s.AcceptDrift(ctx, key, order)
		if err != nil {
			return err
		}
		p.note("Terrier does not enforce the configuration until %s. Merge the change before.\n", p.at(done.Until))
	}
	p.note("The change is for %s.\n", proposed.Of)
	if file == "" || file == "-" {
		p.print(p.Stdout, proposed.Patch)
		return nil
	}
	if err := os.WriteFile(p.path(file), []byte(proposed.Patch), 0o600); err != nil {
		return fmt.Errorf("writing the change: %w", err)
	}
	return nil
}

// proposal says on standard error what the change edits, and what it does not.
func (p decideCommands) proposal(edits []patch.Edit, open []patch.Open) {
	for _, e := range edits {
		p.note("%s:%d: %s: %s\n", e.File, e.Line, strings.TrimSuffix(e.Address+" "+e.Attribute, " "), e.What)
	}
	for _, o := range open {
		at := ""
		if o.Where != "" {
			at = " (" + o.Where + ")"
		}
		p.note("Not edited: %s%s: %s\n", strings.TrimSuffix(o.Address+" "+o.Attribute, " "), at, o.Why)
	}
}

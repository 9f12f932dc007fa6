package pages

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Failed is the page of a request that was not carried out. The log of the server
// has the same request ID.
func Failed(v *Visit, r command.Refusal, request string) Page {
	p := Page{Title: titles[r.Kind], Template: "problem", Data: failure{
		Error: whatFailed(v, r), Hint: hintFor(r.Reason, r.Hint), Request: request, Links: waysOut(v, r), Again: r.Kind == fault.Later,
	}}
	if p.Title == "" {
		p.Title = titles[fault.Broken]
	}
	if r.Kind == fault.Later {
		p.Live.Every = 3 * time.Second
	}
	return p
}

// whatFailed is what a page says of a refusal, as a sentence. A missing page is
// called by its address.
func whatFailed(v *Visit, r command.Refusal) string {
	if r.Reason == "NoRoute" {
		return fmt.Sprintf("There is no page at %s.", ui.Cut(200, v.Path))
	}
	return ui.Sentence(r.Error)
}

type failure struct {
	Error, Hint, Request string
	Links                []link
	Again                bool // the page retries where scripts run
}

type link struct{ Name, Href string }

// titles head the pages about failures.
var titles = map[fault.Kind]string{
	fault.Invalid: "Invalid request", fault.Denied: "Permission denied", fault.Missing: "Not found",
	fault.Conflict: "Changed in the meantime", fault.Later: "Try again later", fault.Broken: "Internal error",
}

// hints replace the hints of the command line, which name commands.
var hints = map[string]string{
	query.ReasonPlanChanged:        "Nothing was changed. Review the pending plan and decide again.",
	query.ReasonNoPlan:             "The stack has no plan yet, another user decided first, or the plan was replaced. Check the status of the stack.",
	query.ReasonOnlyScript:         "To have a plan made before each run of the script, annotate the stack with terrier.dev/approval=manual. Plan now runs the script, and makes no plan.",
	access.ReasonNotFound:          "The object may have been deleted, or its name is misspelt.",
	access.ReasonAccessDenied:      "Ask the administrator of the cluster for a role that allows it.",
	access.ReasonUnknownUser:       "Sign in again.",
	query.ReasonNotManual:          "The page of the stack shows its mode.",
	query.ReasonNoRuns:             "The page of the stack shows what it is waiting for.",
	query.ReasonNotKept:            "The Runs tab lists the recorded runs.",
	query.ReasonNoVersion:          "The States tab lists the stored versions.",
	query.ReasonStateUnseen:        "Plan the stack first, so that Terrier reads the stored state and keeps a copy.",
	query.ReasonRunning:            "Wait until the run has ended. To prevent further runs, suspend the stack.",
	query.ReasonStateBehind:        "Download the stored state under States and upload one that follows it, or select the option that rewrites lineage and serial.",
	command.ReasonStateConflict:    "Nothing was changed. Review the stored state and decide again.",
	command.ReasonBreakGlassDenied: "Ask the operator to start the server with --allow-break-the-glass.",
	command.ReasonNoSession:        "No command was run. Check the session under Break-glass session.",
	command.ReasonCommandBusy:      "Wait until it ends. The Runs tab has its log.",
	"CommandInvalid":               "The list under Break-glass session shows the arguments of each command.",
	command.ReasonNothingUntracked: "The page of the stack shows its status.",
	query.ReasonUnpublished:        "The outputs are published after an apply.",
	query.ReasonStateForeign:       "Use the engine with the backend of the stack.",
	query.ReasonLockChanged:        "Check the current holder of the lock.",
	"Suspended":                    "Resume the stack first.",
	"RepairUnclear":                "For each resource, enter its import ID or select that it does not exist.",
	"PreviewFailed":                "See the log of the run.",
	"CancelUnconfirmed":            "The run goes on. To cancel it, go back and select the checkbox.",
	"DestroyUnseen":                "Go back, review what the plan destroys, and select the checkbox.",
	"NotAnswered":                  "The request was stored. The page of the stack shows its progress.",
	"NoRoute":                      "Search the list of stacks.",
	"NoMethod":                     "This address accepts a form. Open the page that has the form.",
	"TooManyStreams":               "Close some of the open pages.",
	query.ReasonNoSuchThing:        "The object may have been deleted, or its name is misspelt.",
	access.ReasonNotInstalled:      "Install the definitions of Terrier in this cluster.",
	query.ReasonTokenChanged:       "Nothing was changed. Review the current deletions and decide again.",
	query.ReasonRegistryIdle:       "Resume the registry first.",
	query.ReasonNotBlocked:         "Check the status of the registry.",
}

func hintFor(reason, otherwise string) string {
	if h, ok := hints[reason]; ok {
		return h
	}
	return otherwise
}

func browserHint(err error) string { return hintFor(fault.Reason(err, ""), command.Hint(err)) }

// stackRemains are the reasons for which a part of a stack is missing, and not the stack.
var stackRemains = map[string]bool{query.ReasonNoPlan: true, query.ReasonOnlyScript: true, query.ReasonNoRuns: true, query.ReasonNotKept: true, query.ReasonNoVersion: true}

// waysOut are the links on an error page, by the subject of the address.
func waysOut(v *Visit, r command.Refusal) []link {
	var out []link
	parts := strings.Split(strings.Trim(v.Path, "/"), "/")
	refused := len(parts) == 3 && r.Kind == fault.Denied // the visitor may not open the page of the stack
	isStack := len(parts) > 2 && parts[0] == "stacks"
	var k query.Key
	if isStack {
		k.Namespace = parts[1]
		k.Kind, k.Name = query.SplitAddress(parts[2])
	}
	if isStack && (r.Kind != fault.Missing || stackRemains[r.Reason]) && !refused {
		if r.Reason == query.ReasonPlanChanged {
			out = append(out, link{"View the pending plan", stackPath(k, "plan")})
		}
		out = append(out, link{"The stack " + k.String(), stackPath(k)})
	}
	if isStack && r.Reason == access.ReasonNotFound && v.mayReadAuditLog(k.Namespace) {
		out = append(out, link{"Audit log of the stack", ui.With("/audit", url.Values{"namespace": {k.Namespace}, "stack": {k.Name}}, "")})
	}
	if isStack && r.Reason == access.ReasonNotFound && v.mayReadRetained(k.Namespace) {
		out = append(out, link{"Retained resources of the stack", ui.With("/retained", url.Values{"namespace": {k.Namespace}, "name": {k.Name}}, "")})
	}
	if list, ok := lists[parts[0]]; ok {
		out = append(out, list)
	}
	if v.Backend != nil && v.Backend.Alone {
		return out
	}
	return append(out, link{"All stacks", "/stacks"})
}

// lists are the pages that list what the pages below an address are about.
var lists = map[string]link{
	"approvals":  {"All approvals", "/approvals"},
	"retained":   {"Retained resources", "/retained"},
	"tokens":     {"All tokens", "/tokens"},
	"registry":   {"All modules and providers", "/registry"},
	"sources":    {"All sources", "/sources"},
	"tenants":    {"All tenants", "/tenants"},
	"registries": {"All tenants", "/tenants"},
	"templates":  {"All tenants", "/tenants"},
}

// mayReadRetained reports whether records of deleted stacks exist, and whether
// the visitor may view those of a namespace.
func (v *Visit) mayReadRetained(namespace string) bool {
	return v.Backend.Retained != nil && v.Can != nil && v.Can(access.Request{Verb: "list", Resource: access.ResourceStacks, Namespace: namespace})
}

// mayReadAuditLog reports whether there is an audit log, and whether the visitor may
// view its entries about the stacks of a namespace.
func (v *Visit) mayReadAuditLog(namespace string) bool {
	return v.Backend != nil && v.Backend.AuditLog != nil && v.Can != nil && v.Can(access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: namespace})
}

// listAddress is the list that a form came from, if it names one. Other addresses
// are ignored, so that a form cannot redirect to another site.
func listAddress(back string) string {
	if u, err := url.Parse(back); err == nil && u.Scheme == "" && u.Host == "" && u.Path == "/stacks" {
		return ui.With("/stacks", u.Query(), "")
	}
	return "/stacks"
}

// inBrowser is the situation of a stack with a next step for a browser instead of the
// command line.
func inBrowser(of query.Stack, s meaning.Situation) meaning.Situation {
	switch do, ok := doHere[stack.Reason(of.Phase)]; {
	case of.Phase == string(stack.DriftFound) && of.Undecidable != "":
		s.Do = "Review the drifted resources, and change the module to match. The plan cannot be approved: " + of.Undecidable + "."
	case ok:
		s.Do = do
	}
	return s
}

// doHere has an entry for each reason whose next step names a command; a test
// checks that.
var doHere = map[stack.Reason]string{
	stack.Suspended:          "Choose Resume.",
	stack.SourceNotReady:     "The link to the source shows why it cannot be fetched. The stack is reconciled as soon as the source has an artifact.",
	stack.DependencyNotReady: "Check the stack that the message names. This stack is reconciled as soon as that one is ready.",
	stack.NotConverging:      "Correct the module so that a plan after an apply is empty, or find the other writer. Then choose Plan now.",
	stack.StateTampered:      "Compare the versions under States and roll back to the last good one. To accept the stored state, choose Accept the stored state.",
	stack.StateRegressed:     "Roll back to the newest version under States. To accept the stored state, choose Accept the stored state.",
	stack.StateMissing:       "Move or restore the state, then choose Plan now. To continue with what is there on purpose, choose Accept the stored state under States and give a reason.",
	stack.StateNotAdopted:    "To adopt it, annotate the stack with terrier.dev/adopt-state=true. To begin without it, change where the stack keeps its state. Of a stack that is deleted: to retain the resources, annotate it with terrier.dev/deletion=retain. To destroy them, run the command that the message names.",
	stack.BreakGlassSession:  "Run commands and end the session under Break-glass session. The session also ends at its timeout.",
	stack.LockedByOther:      "If the holder of the lock still runs, wait: Terrier retries automatically. If it does not, choose Unlock.",
	stack.RetryLater:         "Correct the cause; see the log of the run. Terrier retries automatically. To retry now, choose Plan now.",
	stack.DestroyFailed:      "Correct the module, the variables or the spec: Terrier then destroys from what you changed, at once. To keep the resources, annotate the stack with terrier.dev/deletion=retain. To take a resource out of the state, download it under States, edit it and push it. To try once more, choose Plan now.",
	stack.StepsFailed:        "Correct the step, its files or its hosts; see the log of the run. To run the steps again, choose Run again.",
	stack.StepsHeld:          "Review the annotation terrier.dev/after-apply and the files that it names. To run them, choose Approve and run. Where a policy says who approves, each of these users does.",
	stack.RolledBack:         "Correct the module, its inputs or the spec: Terrier then plans again. To try what was rolled back once more, choose End rollback.",
	stack.RunCancelled:       "Read the log of the run. To go on, choose Plan now. Terrier also goes on when the module or an input changes.",
	stack.RetryLimitReached:  "Correct the cause. Then choose Plan now, or change the object or its source.",
	stack.StateIncomplete:    "To import the resources, choose Repair. If you removed them yourself, annotate the stack with terrier.dev/ignore-untracked and the name of the run.",
	stack.AwaitingApproval:   "Review the plan, then approve or reject it. If an input of the plan changes, a new plan replaces it and the approval becomes void.",
	stack.PlanRejected:       "Change the module or its inputs: Terrier then makes another plan. To apply the rejected plan nevertheless, approve it.",
	stack.PlanOnlyHeld:       "Review the plan. To allow approvals, set planOnly to false.",
	stack.DriftFound:         "Review the drifted resources. Approve the plan to fix them, or change the module to match.",
	stack.ReviewRefused:      "Review the plan and the message. Correct the module, or have the policy or the webhook corrected.",
	stack.ApplyWithheld:      "Wait. If it cannot wait, and you may have the plan applied now, choose Apply outside of the windows. Otherwise have the owner of the policy change it.",
	stack.StatusUnreadable:   "Restore status.terrier from a backup, or remove it. If you remove it, the controller takes over the stack from the rest of its status. If the message names a record or a key, restore that, and keep status.terrier.",
	stack.EngineMissing:      "Install an engine beside the terrier program or on PATH, or start the server with --engine.",
}

// Problem stands for a part of a page that could not be shown; the rest is shown.
type Problem struct {
	Title string
	Error string
	Hint  string
}

// ProblemOf describes err for the pages of other packages; nil for nil.
func ProblemOf(title string, err error) *Problem { return problemOf(title, err) }

// problemOf describes err; nil for nil.
func problemOf(title string, err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Title: title, Error: ui.Sentence(err.Error()), Hint: browserHint(err)}
}

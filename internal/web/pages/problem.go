package pages

import (
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Failed is the page of a request that was not carried out. The request's id is
// what the log of the server knows it by.
func Failed(v *Visit, r command.Refusal, request string) Page {
	p := Page{Title: titles[r.Kind], Template: "problem", Data: failure{
		Error: r.Error, Hint: hintFor(r.Reason, r.Hint), Request: request, Links: waysOut(v, r), Again: r.Kind == fault.Later,
	}}
	if p.Title == "" {
		p.Title = titles[fault.Broken]
	}
	if r.Kind == fault.Later {
		p.Live.Every = 3 * time.Second
	}
	return p
}

type failure struct {
	Error, Hint, Request string
	Links                []link
	Again                bool // it is tried again by itself where scripts run
}

type link struct{ Name, Href string }

// titles head the pages about failures.
var titles = map[fault.Kind]string{
	fault.Invalid: "That cannot be done", fault.Denied: "Not allowed", fault.Missing: "Not found",
	fault.Conflict: "It changed in the meantime", fault.Later: "Not now", fault.Broken: "Something is broken",
}

// hints say in a browser what the command line says with commands.
var hints = map[string]string{
	query.ReasonPlanChanged:     "Nothing was done. Look at the plan that waits now, and decide again.",
	query.ReasonNoPlan:          "Somebody was faster, or the plan was replaced. Look at how the stack stands now.",
	access.ReasonNotFound:       "It may be deleted by now, or its name is misspelt.",
	access.ReasonAccessDenied:   "Ask whoever runs the cluster for a role that allows it.",
	access.ReasonUnknownUser:    "Sign in again.",
	query.ReasonNotManual:       "The stack's page says what decides.",
	query.ReasonNoRuns:          "The stack's page says what it waits for.",
	query.ReasonNotKept:         "The list of runs has those that are kept.",
	query.ReasonNoVersion:       "The list of states has those that are kept.",
	query.ReasonStateUnseen:     "Plan the stack first, so that what is stored is looked at and kept.",
	query.ReasonRunning:         "Wait until the run has ended, or suspend the stack first to keep further ones off.",
	query.ReasonStateBehind:     "Download what is there under States and bring one that follows it, or tick the box that rewrites lineage and serial.",
	command.ReasonStateConflict: "Nothing was done. Look at what is stored now, and decide again.",
	command.ReasonGlassDenied:   "The operator allows it with --allow-break-the-glass.",
	command.ReasonGlassWhole:    "Nothing was run. Look at how the session stands under Work by hand.",
	command.ReasonHandBusy:      "Wait for its end; its log is among the runs.",
	"CommandInvalid":            "The list under Work by hand says what each command takes.",
	command.ReasonNoGap:         "The stack's page says how it stands.",
	query.ReasonNoOutputs:       "Set writeOutputsToSecret.name to publish them.",
	query.ReasonUnpublished:     "They are written after an apply.",
	query.ReasonStateForeign:    "Use the engine with that backend.",
	query.ReasonLockChanged:     "Look at who holds it now.",
	"Suspended":                 "Resume it first.",
	"RepairUnclear":             "Say of each object what to import it by, or that it does not exist.",
	"PreviewFailed":             "The log of the run has the whole story.",
	"DestroyUnseen":             "Go back, look at what the plan destroys, and tick the box.",
	"NotAnswered":               "It is not lost. The stack's page says how far it is.",
	"NoRoute":                   "Look for it in the list of stacks.",
	"NoMethod":                  "It is where a form is sent to. Begin at the page that has the form.",
	"TooManyStreams":            "Close some of the pages that follow something.",
	query.ReasonNoSuchThing:     "It may be deleted by now, or its name is misspelt.",
	access.ReasonNotInstalled:   "Install Terrier's definitions into this cluster.",
	query.ReasonTokenChanged:    "Nothing was done. Look at what would be deleted now, and decide again.",
	query.ReasonRegistryIdle:    "Resume the registry first.",
	query.ReasonNotBlocked:      "Look at how the registry stands now.",
}

func hintFor(reason, otherwise string) string {
	if h, ok := hints[reason]; ok {
		return h
	}
	return otherwise
}

func browserHint(err error) string { return hintFor(fault.Reason(err, ""), command.Hint(err)) }

// waysOut lead on from a failure, by what the address was about.
func waysOut(v *Visit, r command.Refusal) []link {
	var out []link
	parts := strings.Split(strings.Trim(v.Path, "/"), "/")
	refused := len(parts) == 3 && r.Kind == fault.Denied // the stack's own page: a link to it would lead nowhere
	if len(parts) > 2 && parts[0] == "stacks" && r.Kind != fault.Missing && !refused {
		k := query.Key{Namespace: parts[1], Name: parts[2]}
		if r.Reason == query.ReasonPlanChanged {
			out = append(out, link{"See the plan that waits now", stackPath(k, "plan")})
		}
		out = append(out, link{"The stack " + k.String(), stackPath(k)})
	}
	if len(parts) > 2 && parts[0] == "stacks" && r.Reason == access.ReasonNotFound && v.mayReadJournal(parts[1]) {
		out = append(out, link{"What became of it", with("/audit", url.Values{"namespace": {parts[1]}, "stack": {parts[2]}}, "")})
	}
	if len(parts) > 2 && parts[0] == "stacks" && r.Reason == access.ReasonNotFound && v.mayReadRetained(parts[1]) {
		out = append(out, link{"What it left behind", with("/retained", url.Values{"namespace": {parts[1]}, "name": {parts[2]}}, "")})
	}
	if parts[0] == "retained" {
		out = append(out, link{"What was left behind", "/retained"})
	}
	if len(parts) > 0 && parts[0] == "approvals" {
		out = append(out, link{"All approvals", "/approvals"})
	}
	return append(out, link{"All stacks", "/stacks"})
}

// mayReadRetained reports whether records of stacks that are gone are kept, and
// the visitor may see those of a namespace.
func (v *Visit) mayReadRetained(namespace string) bool {
	return v.House.Retained != nil && v.Can != nil && v.Can(access.Request{Verb: "list", Resource: access.ResourceStacks, Namespace: namespace})
}

// mayReadJournal reports whether there is a journal, and the visitor may see what
// it has about the stacks of a namespace.
func (v *Visit) mayReadJournal(namespace string) bool {
	return v.House != nil && v.House.Journal != nil && v.Can != nil && v.Can(access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: namespace})
}

// listAddress is the list that a form came from, if it says so and it is that:
// nobody is led out of the house.
func listAddress(back string) string {
	if u, err := url.Parse(back); err == nil && u.Scheme == "" && u.Host == "" && u.Path == "/stacks" {
		return with("/stacks", u.Query(), "")
	}
	return "/stacks"
}

package pages

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// A page about a failure says what happened, what to do, and how to ask about
// it, whatever text it was given.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		path  string
		r     command.Refusal
		title string
		links []string
		every time.Duration
	}{
		"not allowed":       {"/stacks/apps/net", command.Refusal{Error: hostile, Kind: fault.Denied, Reason: access.ReasonAccessDenied}, "Permission denied", []string{"/stacks"}, 0},
		"not that part":     {"/stacks/apps/net/outputs", command.Refusal{Error: hostile, Kind: fault.Denied, Reason: access.ReasonAccessDenied}, "Permission denied", []string{"/stacks/apps/net", "/stacks"}, 0},
		"not there":         {"/stacks/apps/net/runs/x", command.Refusal{Error: "gone", Kind: fault.Missing, Reason: access.ReasonNotFound}, "Not found", []string{"/stacks"}, 0},
		"no plan yet":       {"/stacks/apps/net/plan", command.Refusal{Error: "none", Kind: fault.Missing, Reason: query.ReasonNoPlan}, "Not found", []string{"/stacks/apps/net", "/stacks"}, 0},
		"stale":             {"/stacks/apps/net/approve", command.Refusal{Error: "stale", Kind: fault.Conflict, Reason: query.ReasonPlanChanged}, "Changed in the meantime", []string{"/stacks/apps/net/plan", "/stacks/apps/net", "/stacks"}, 0},
		"not ready":         {"/stacks", command.Refusal{Error: "ask again", Kind: fault.Later}, "Try again later", []string{"/stacks"}, 3 * time.Second},
		"a source of old":   {"/sources/GitRepository/apps/x", command.Refusal{Error: "gone", Kind: fault.Missing, Reason: access.ReasonNotFound}, "Not found", []string{"/sources", "/stacks"}, 0},
		"a tenant of old":   {"/tenants/apps/x", command.Refusal{Error: "gone", Kind: fault.Missing, Reason: query.ReasonNoSuchThing}, "Not found", []string{"/tenants", "/stacks"}, 0},
		"an address of old": {"/nowhere/<b>", command.Refusal{Error: long, Kind: fault.Invalid, Hint: "Look elsewhere."}, "Invalid request", []string{"/stacks"}, 0},
		"of no kind":        {"/", command.Refusal{Error: "x", Kind: "Unheard"}, "Internal error", []string{"/stacks"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, town(), "/")
			v.Path = tt.path
			p := Failed(v, tt.r, "req-42")
			if p.Title != tt.title || p.Live.Every != tt.every {
				t.Errorf("titled %q and asked again every %v, want %q and %v", p.Title, p.Live.Every, tt.title, tt.every)
			}
			var links []string
			for _, l := range p.Data.(failure).Links {
				links = append(links, l.Href)
			}
			if diff := cmp.Diff(links, tt.links); diff != "" {
				t.Errorf("leads on to (-got +want):\n%s", diff)
			}
			if got := parse(t, v, p).text(); !strings.Contains(got, "req-42") || !strings.Contains(got, tt.r.Hint) {
				t.Errorf("the page does not say how to go on: %s", got)
			}
		})
	}
}

// A refusal is a sentence, and a page that does not exist is called by its address.
func TestFailuresAreSentences(t *testing.T) {
	for _, tt := range []struct {
		r    command.Refusal
		want string
	}{
		{command.Refusal{Error: "the stack apps/net does not exist", Reason: access.ReasonNotFound}, "The stack apps/net does not exist"},
		{command.Refusal{Error: "spec.path is empty"}, "spec.path is empty"},
		{command.Refusal{Error: "ann may not patch terraforms"}, "ann may not patch terraforms"}, // a name
		{command.Refusal{Error: "there is no page or API at this address", Reason: "NoRoute"}, "There is no page at /nowhere."},
	} {
		v := visitor(t, town(), "/nowhere")
		if got := Failed(v, tt.r, "req-1").Data.(failure).Error; got != tt.want {
			t.Errorf("the page says %q, want %q", got, tt.want)
		}
	}
}

// Hints of the command line that reach a browser name no command where the page
// has a way of its own.
func TestHintsAreForBrowsers(t *testing.T) {
	for _, reason := range []string{query.ReasonPlanChanged, query.ReasonNoPlan, access.ReasonNotFound, query.ReasonNotManual, query.ReasonNoRuns, query.ReasonNotKept,
		query.ReasonNoVersion, query.ReasonStateUnseen, query.ReasonRunning, command.ReasonNothingUntracked, query.ReasonOnlyScript, query.ReasonUnpublished, query.ReasonStateForeign} {
		err := fault.New(fault.Invalid, reason, errors.New("x"))
		if got := browserHint(err); got == "" || strings.Contains(got, "terrier ") {
			t.Errorf("%s: the hint is %q", reason, got)
		}
	}
	if got, want := browserHint(fault.New(fault.Conflict, "", errors.New("x"))), "Try again in a moment."; got != want {
		t.Errorf("a reason without a hint: %q, want %q", got, want)
	}
}

// The page of a deleted stack shows its audit entries to users who may see them.
func TestADeletedStackLeadsToTheAuditLog(t *testing.T) {
	gone := command.Refusal{Error: "gone", Kind: fault.Missing, Reason: access.ReasonNotFound}
	for name, tt := range map[string]struct {
		auditLog query.AuditLog
		address  string
		may      bool
		want     bool
	}{
		"with permission":    {pastAuditLog{}, "gone", true, true},
		"of another kind":    {pastAuditLog{}, "terraform.second.example.com:gone", true, true},
		"without permission": {pastAuditLog{}, "gone", false, false},
		"there is none":      {nil, "gone", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, town(), "/stacks/apps/"+tt.address+"/runs")
			v.Backend.AuditLog = tt.auditLog
			v.Can = func(a access.Request) bool {
				return tt.may && a == access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: "apps"}
			}
			var leads bool
			for _, l := range Failed(v, gone, "req-1").Data.(failure).Links {
				leads = leads || l == link{"Audit log of the stack", "/audit?namespace=apps&stack=gone"}
			}
			if leads != tt.want {
				t.Errorf("it leads to the audit log: %v, want %v", leads, tt.want)
			}
		})
	}
}

type pastAuditLog struct{ query.AuditLog }

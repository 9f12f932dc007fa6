package pages

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/service"
)

// A page about a failure says what happened, what to do, and how to ask about
// it, whatever text it was given.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		path  string
		r     service.Refusal
		title string
		links []string
		every time.Duration
	}{
		"not allowed":       {"/stacks/apps/net", service.Refusal{Error: hostile, Kind: fault.Denied, Reason: service.ReasonAccessDenied}, "Not allowed", []string{"/stacks"}, 0},
		"not that part":     {"/stacks/apps/net/outputs", service.Refusal{Error: hostile, Kind: fault.Denied, Reason: service.ReasonAccessDenied}, "Not allowed", []string{"/stacks/apps/net", "/stacks"}, 0},
		"not there":         {"/stacks/apps/net/runs/x", service.Refusal{Error: "gone", Kind: fault.Missing, Reason: service.ReasonNotFound}, "Not found", []string{"/stacks"}, 0},
		"stale":             {"/stacks/apps/net/approve", service.Refusal{Error: "stale", Kind: fault.Conflict, Reason: service.ReasonPlanChanged}, "It changed in the meantime", []string{"/stacks/apps/net/plan", "/stacks/apps/net", "/stacks"}, 0},
		"not ready":         {"/stacks", service.Refusal{Error: "ask again", Kind: fault.Later}, "Not now", []string{"/stacks"}, 3 * time.Second},
		"an address of old": {"/nowhere/<b>", service.Refusal{Error: long, Kind: fault.Invalid, Hint: "Look elsewhere."}, "That cannot be done", []string{"/stacks"}, 0},
		"of no kind":        {"/", service.Refusal{Error: "x", Kind: "Unheard"}, "Something is broken", []string{"/stacks"}, 0},
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

// Hints of the command line that reach a browser name no command where the page
// has a way of its own.
func TestHintsAreForBrowsers(t *testing.T) {
	for _, reason := range []string{service.ReasonPlanChanged, service.ReasonNoPlan, service.ReasonNotFound, service.ReasonNotManual, service.ReasonNoRuns, service.ReasonNotKept,
		service.ReasonNoVersion, service.ReasonStateUnseen, service.ReasonRunning, service.ReasonNoGap, service.ReasonNoOutputs, service.ReasonUnpublished, service.ReasonStateForeign} {
		err := fault.New(fault.Invalid, reason, errors.New("x"))
		if got := browserHint(err); got == "" || strings.Contains(got, "terrier ") {
			t.Errorf("%s: the hint is %q", reason, got)
		}
	}
	if got, want := browserHint(fault.New(fault.Conflict, "", errors.New("x"))), "Try again in a moment."; got != want {
		t.Errorf("a reason without a hint: %q, want %q", got, want)
	}
}

// Whoever looks for a stack that is gone is shown what became of it, if they may
// see that.
func TestADeletedStackLeadsToTheJournal(t *testing.T) {
	gone := service.Refusal{Error: "gone", Kind: fault.Missing, Reason: service.ReasonNotFound}
	for name, tt := range map[string]struct {
		journal service.Journal
		may     bool
		want    bool
	}{
		"somebody who may":     {pastJournal{}, true, true},
		"somebody who may not": {pastJournal{}, false, false},
		"there is none":        {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, town(), "/stacks/apps/gone/runs")
			v.House.Journal = tt.journal
			v.Can = func(a service.Access) bool {
				return tt.may && a == service.Access{Verb: "list", Resource: service.ResourceAudit, Namespace: "apps"}
			}
			var leads bool
			for _, l := range Failed(v, gone, "req-1").Data.(failure).Links {
				leads = leads || l == link{"What became of it", "/audit?namespace=apps&stack=gone"}
			}
			if leads != tt.want {
				t.Errorf("it leads to the journal: %v, want %v", leads, tt.want)
			}
		})
	}
}

type pastJournal struct{ service.Journal }

package states

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// shelf is one place for a state.
type shelf struct {
	Store
	found kube.Stored
	err   error
	saved []byte
	full  error // why nothing can be saved
}

func (s *shelf) Load(context.Context, kube.StateRef) (kube.Stored, error) { return s.found, s.err }

func (s *shelf) Save(_ context.Context, _ kube.StateRef, _ kube.Owner, state []byte) error {
	if s.full == nil {
		s.saved = state
	}
	return s.full
}

// events remembers the reasons of what it is told.
type events struct {
	last string
	all  []string
}

func (e *events) Event(_ client.Object, _, reason, _ string) {
	e.last, e.all = reason, append(e.all, reason)
}

// newKeeper completes a keeper as the controller does.
func newKeeper(kp Keeper, live client.Reader) *Keeper {
	kp.Dialects = dialect.NewRegistry(infra.Dialect{})
	kp.Versions = &Versions{Log: slog.New(slog.DiscardHandler), Records: kp.Records}
	kp.Inspector = &Inspector{
		Live: live, Dialects: kp.Dialects, Store: kp.Store, KindOf: func(string) string { return "" }, Records: kp.Records, Versions: kp.Versions,
	}
	kp.Audit = func(context.Context, Subject, audit.Entry, string) error { return nil }
	return &kp
}

// words are what the stacks of these tests call their fields.
var words = stack.Words{Argument: "net", StateName: "backendConfig.secretSuffix", StatePlace: "backendConfig.secretSuffix", StateBack: "backendConfig.secretSuffix"}

// subject is a stack of which nothing is known.
func subject(id string, obj client.Object) Subject {
	return Subject{ID: id, Dialect: infra.Dialect{}, Object: obj, Observed: &stack.Observation{Spec: stack.Spec{Words: words}}}
}

func openRecords(t *testing.T) *records.Store {
	t.Helper()
	return &records.Store{Blobs: blobtest.Files(t, 1<<20)}
}

func thing(lineage string, serial int) []byte {
	return fmt.Appendf(nil, `{"version":4,"lineage":%q,"serial":%d,"resources":[{"mode":"managed","type":"a","name":"b","instances":[{}]}]}`, lineage, serial)
}

func storedAs(state []byte) kube.Stored {
	facts, err := stack.ReadState(state)
	if err != nil {
		panic(err) // a test's own state
	}
	return kube.Stored{State: state, Digest: facts.Digest}
}

func knownAs(state []byte) stack.StateID {
	facts, err := stack.ReadState(state)
	if err != nil {
		panic(err) // a test's own state
	}
	return facts.StateID
}

// TB-16 and F18: a foreign change of a state is named and stops runs; a permitted
// one is accepted.
func TestWhatIsStoredIsComparedWithWhatIsKnown(t *testing.T) {
	five := thing("l", 5)
	by := func(person string, state []byte) kube.Stored {
		s := storedAs(state)
		s.Person = person
		return s
	}
	unstored := knownAs(five)
	unstored.Unstored = true
	for name, tt := range map[string]struct {
		known  stack.StateID
		head   stack.StateID // as the records have it
		found  kube.Stored
		err    error
		empty  bool // nothing was built
		accept string
		want   stack.Reason
		says   string
		event  string
	}{
		"the same":                             {known: knownAs(five), found: storedAs(five)},
		"nothing was known":                    {found: storedAs(five)},
		"continued by somebody":                {known: knownAs(five), found: storedAs(thing("l", 7)), event: "StateContinued"},
		"an older one":                         {known: knownAs(five), found: storedAs(thing("l", 4)), want: stack.StateRegressed, says: "serial 4"},
		"older than the records know":          {known: knownAs(thing("l", 4)), head: knownAs(five), found: storedAs(thing("l", 4)), want: stack.StateRegressed, says: "serial 5"},
		"another lineage":                      {known: knownAs(five), found: storedAs(thing("m", 9)), want: stack.StateRegressed, says: "lineage m"},
		"the same serial with another content": {known: knownAs(five), found: storedAs(append([]byte(" "), five...)), want: stack.StateTampered, says: "serial 5"},
		"no JSON":                              {known: knownAs(five), found: kube.Stored{State: []byte("x"), Digest: "sha256:x"}, want: stack.StateTampered, says: "cannot be read"},
		"no gzip":                              {found: kube.Stored{Digest: "unreadable:x"}, err: fault.New(fault.Broken, kube.StateUnreadable, errors.New("gzip")), want: stack.StateTampered, says: "gzip"},
		"gone":                                 {known: knownAs(five), want: stack.StateTampered, says: "is gone"},
		"gone with nothing in it":              {known: knownAs(five), empty: true},
		"written during a run":                 {known: unstored, found: storedAs(thing("l", 9)), want: stack.StateTampered, says: "which another client wrote during a run"},
		"a person took its place":              {known: unstored, found: by("ann", thing("l", 9)), event: "StateContinued"},
		"an older one is accepted":             {known: knownAs(five), found: storedAs(thing("l", 4)), accept: knownAs(thing("l", 4)).Digest, event: "StateAccepted"},
		"that it is gone is accepted":          {known: knownAs(five), accept: "none@now", event: "StateAccepted"},
		"only a digest was written down":       {known: stack.StateID{Digest: knownAs(five).Digest}, found: storedAs(thing("l", 7)), event: "StateContinued"},
		"another one was accepted":             {known: knownAs(five), found: storedAs(thing("l", 4)), accept: knownAs(thing("l", 3)).Digest, want: stack.StateRegressed},
	} {
		t.Run(name, func(t *testing.T) {
			said := &events{}
			c := newKeeper(Keeper{Store: &shelf{found: tt.found, err: tt.err}, Records: openRecords(t), Events: said}, nil)
			if tt.head != (stack.StateID{}) {
				if err := c.Versions.setHead(t.Context(), "uid", tt.head); err != nil {
					t.Fatal(err)
				}
			}
			obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net"}}
			of := subject("uid", obj)
			*of.Observed = stack.Observation{
				Spec:   stack.Spec{AcceptState: tt.accept, Words: words},
				Status: stack.Status{StoredState: stack.StoredState{KnownState: tt.known}, Resources: stack.Resources{Created: !tt.empty}},
			}
			for range 2 { // it says the same each time, and tells it once
				state, err := c.load(t.Context(), of, kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "net"})
				if got := stack.Reason(fault.Reason(err, "")); got != tt.want {
					t.Fatalf("load() = %v, want %q", err, tt.want)
				}
				if tt.want == "" && !bytes.Equal(state, tt.found.State) {
					t.Errorf("load() = %q, want what is there", state)
				}
				if tt.want != "" && (!strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "terrier state rollback net")) {
					t.Errorf("it says %q, want %q and a way out", err, tt.says)
				}
				if said.last != tt.event {
					t.Errorf("the last event is %q, want %q", said.last, tt.event)
				}
			}
			if n := len(said.all); tt.event != "" && n != 1 {
				t.Errorf("%d events, want one", n)
			}
			list, err := c.Versions.list(t.Context(), "uid")
			if err != nil {
				t.Fatal(err)
			}
			if tt.head != (stack.StateID{}) {
				tt.known = tt.head
			}
			kept := tt.found.Digest != "" && tt.err == nil && !bytes.Equal(tt.found.State, []byte("x")) && tt.found.Digest != tt.known.Digest
			if (len(list.Versions) == 1) != kept {
				t.Errorf("%d versions are kept, want that what was met is: %v", len(list.Versions), kept)
			}
		})
	}
}

func TestAcceptanceIsOfOneMoment(t *testing.T) {
	p := subject("uid", nil)
	p.Observed.Spec.AcceptState, p.Observed.Status.AcceptedState = "sha256:a@1", "sha256:a@1"
	if p.accepts("sha256:a") {
		t.Error("what was accepted once is accepted again")
	}
	p.Observed.Spec.AcceptState = "sha256:a@2"
	if !p.accepts("sha256:a") || p.accepts("sha256:b") {
		t.Error("a new acceptance is of the state that it names, and of no other")
	}
}

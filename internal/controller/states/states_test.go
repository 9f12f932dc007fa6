package states

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
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

// subject is a stack of which nothing is known.
func subject(id string, obj client.Object) Subject {
	return Subject{ID: id, Dialect: infra.Dialect{}, Object: obj, Observed: &stack.Observation{}}
}

func openRecords(t *testing.T) *records.Store {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return &records.Store{Blobs: files}
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
				Spec:   stack.Spec{AcceptState: tt.accept},
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

// A state that is missing because the spec names another place says where it was,
// and how it comes to the new place.
func TestAnotherPlaceIsNoLoss(t *testing.T) {
	kept, five := openRecords(t), thing("l", 5)
	key := record.Snapshot("uid", "sha256:d1")
	if err := kept.Put(t.Context(), key, []byte(`{"Job":{},"Note":{"state":{"Namespace":"apps","Workspace":"default","Suffix":"old"}}}`)); err != nil {
		t.Fatal(err)
	}
	c := newKeeper(Keeper{Store: &shelf{}, Records: kept, Events: &events{}}, nil)
	of := subject("uid", &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net"}})
	of.Observed.Status = stack.Status{StoredState: stack.StoredState{KnownState: knownAs(five)}, Resources: stack.Resources{Created: true, Snapshot: key}}
	load := func(suffix string) string {
		t.Helper()
		_, err := c.load(t.Context(), of, kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: suffix})
		if fault.Reason(err, "") != string(stack.StateTampered) {
			t.Fatalf("load() = %v, want StateTampered", err)
		}
		return err.Error()
	}
	for _, want := range []string{"tfstate-default-old", "serial 5", "tfstate-default-new holds none", "terrier state rollback net 5 -n apps"} {
		if got := load("new"); !strings.Contains(got, want) {
			t.Errorf("another place: %q, want %q in it", got, want)
		}
	}
	if got := load("old"); !strings.Contains(got, "is gone") {
		t.Errorf("the same place: %q, want it gone", got)
	}

	// A rollback stored the state in a place of its own since the last apply.
	six := thing("l", 6)
	of.Observed.Status.KnownState = knownAs(six)
	if err := c.Versions.keep(t.Context(), "uid", six, stack.StateVersion{By: "person ann", Secret: "apps/tfstate-default-new"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := load("third"); !strings.Contains(got, "was last stored in the Secret apps/tfstate-default-new (serial 6") {
		t.Errorf("after a rollback: %q, want the place that it stored the state in", got)
	}
	if got := load("new"); !strings.Contains(got, "is gone") {
		t.Errorf("the place of the rollback: %q, want it gone", got)
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

func TestVersionsAreBounded(t *testing.T) {
	c := newKeeper(Keeper{Records: openRecords(t)}, nil)
	for serial := range 80 {
		v := stack.StateVersion{By: "apply-1"}
		if serial%20 == 0 {
			v.Before = "destroy-1"
		}
		for range 2 { // as after a crash
			if err := c.Versions.keep(t.Context(), "uid", thing("l", serial), v, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := c.Versions.list(t.Context(), "uid")
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, v := range list.Versions {
		got = append(got, v.Serial)
	}
	want := []uint64{0, 20, 40}
	for serial := uint64(50); serial < 80; serial++ {
		want = append(want, serial)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the versions kept (-want +got):\n%s", diff)
	}
	keys, err := c.Records.Blobs.List(t.Context(), "stacks/uid/states/")
	if err != nil || len(keys) != len(want)+1 {
		t.Errorf("%d records, %v; want the versions and their list", len(keys), err)
	}
	for _, v := range list.Versions {
		if state, err := c.Records.Get(t.Context(), record.StateVersion("uid", v.Key())); err != nil || !bytes.Equal(state, thing("l", int(v.Serial))) {
			t.Errorf("the version %d is %q, %v", v.Serial, state, err)
		}
	}
	list.Trim(30, list.Versions[len(list.Versions)-1].Bytes*10)
	if len(list.Versions) != 10 || list.Versions[9].Serial != 79 {
		t.Errorf("%d versions up to %d fit into the bytes of ten, want the newest ten", len(list.Versions), list.Versions[len(list.Versions)-1].Serial)
	}
}

// files are what a run left.
type files map[string]string

// leftBy are the records of a run that left files.
func leftBy(t *testing.T, left files) *records.Store {
	store := openRecords(t)
	store.Runs = left
	return store
}

func (l files) Open(_, _, file string) (io.ReadCloser, error) {
	if content, ok := l[file]; ok {
		return io.NopCloser(strings.NewReader(content)), nil
	}
	return nil, fault.New(fault.Missing, "", errors.New(file))
}

func TestARunThatCannotStoreItsStateLosesNothing(t *testing.T) {
	mine := thing("l", 8)
	for name, tt := range map[string]struct {
		full error
		want stack.StateID
		says string
		err  bool
	}{
		"all is well":           {nil, knownAs(mine), "", false},
		"somebody wrote":        {fault.New(fault.Conflict, kube.StateConflict, errors.New("newer")), stack.StateID{Lineage: "l", Serial: 8, Digest: knownAs(mine).Digest, Unstored: true}, "StateNotStored", false},
		"the API server is ill": {errors.New("no"), stack.StateID{}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			said, at := &events{}, &shelf{full: tt.full}
			c := newKeeper(Keeper{Store: at, Records: leftBy(t, files{runner.FileState: string(mine)}), Events: said}, nil)
			var run stack.Run
			of := subject("uid", &v1alpha2.Terraform{})
			err := c.Settle(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &kube.StateRef{}, &run)
			if (err != nil) != tt.err || run.KnownState != tt.want || said.last != tt.says {
				t.Errorf("Settle() = %v, known %+v, said %q; want known %+v", err, run.KnownState, said.last, tt.want)
			}
			if list, err := c.Versions.list(t.Context(), "uid"); err != nil || !tt.err && (len(list.Versions) != 1 || list.Versions[0].By != "apply-1" || list.Head != tt.want) {
				t.Errorf("the versions are %+v, %v; want that of the run", list, err)
			}
		})
	}
}

// On a full disk an engine leaves an empty file where it wanted to write the state
// that no backend accepted. It takes the place of no state, also where there is none
// yet.
func TestWhatIsNoStateIsNotRescued(t *testing.T) {
	before, after := thing("l", 8), string(thing("l", 9))
	for name, tt := range map[string]struct {
		stored, rescued, says string
		want                  stack.StateID
	}{
		"an empty file":          {"", "", "StateNotRescued", stack.StateID{}},
		"a part of a state":      {"", after[:len(after)/2], "StateNotRescued", stack.StateID{}},
		"an empty file, later":   {string(before), "", "StateNotRescued", knownAs(before)},
		"a state without a name": {string(before), "{}", "StateNotRescued", knownAs(before)},
		"a state":                {string(before), after, "StateRescued", knownAs([]byte(after))},
	} {
		t.Run(name, func(t *testing.T) {
			left := files{runner.FileRescue: tt.rescued}
			if tt.stored != "" {
				left[runner.FileState] = tt.stored
			}
			said, at := &events{}, &shelf{}
			c := newKeeper(Keeper{Store: at, Records: leftBy(t, left), Events: said}, nil)
			var run stack.Run
			of := subject("uid", &v1alpha2.Terraform{})
			if err := c.Settle(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &kube.StateRef{}, &run); err != nil {
				t.Fatal(err)
			}
			if run.KnownState != tt.want || said.last != tt.says {
				t.Errorf("known is %+v, said %q; want %+v and %q", run.KnownState, said.last, tt.want, tt.says)
			}
			if tt.says == "StateNotRescued" && string(at.saved) != tt.stored {
				t.Errorf("%q was stored, want %q", at.saved, tt.stored)
			}
			if kept, err := c.Records.Get(t.Context(), record.Rescued("uid", "apply-1")); tt.says == "StateNotRescued" && (err != nil || string(kept) != tt.rescued) {
				t.Errorf("kept for a person is %q, %v; want %q", kept, err, tt.rescued)
			}
		})
	}
}

// A destroy begins with a version that is kept for as long as any is.
func TestTheStateBeforeADestroyIsMarked(t *testing.T) {
	state := thing("l", 3)
	c := newKeeper(Keeper{Store: &shelf{found: storedAs(state)}, Records: openRecords(t), Events: &events{}}, nil)
	for _, kind := range []stack.RunKind{stack.PlanRun, stack.DestroyRun} {
		if _, err := c.Start(t.Context(), subject("uid", &v1alpha2.Terraform{}), &kube.StateRef{}, string(kind)+"-1", kind, stack.Cause{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.Versions.list(t.Context(), "uid")
	if want := "destroy-1"; err != nil || len(list.Versions) != 1 || list.Versions[0].Before != want {
		t.Errorf("the versions are %+v, %v; want one before %s", list.Versions, err, want)
	}
}

// LQ-39: two stacks that say the same of where their state is.
func TestAPlaceHasOneStack(t *testing.T) {
	custom := stack.Backend{Kind: stack.Custom, Custom: `backend "s3" { bucket = "b" }`}
	for name, tt := range map[string]struct {
		a, b stack.Configuration
		same bool
	}{
		"one Secret":                {stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "x"}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "x"}}, true},
		"two Secrets":               {stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "x"}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "y"}}, false},
		"two workspaces":            {stack.Configuration{Backend: custom}, stack.Configuration{Backend: custom, Workspace: "w"}, false},
		"one bucket":                {stack.Configuration{Backend: custom}, stack.Configuration{Backend: custom}, true},
		"completed by the same":     {stack.Configuration{Backend: custom, Completes: []stack.ConfigFrom{{Name: "a"}}}, stack.Configuration{Backend: custom, Completes: []stack.ConfigFrom{{Name: "a"}}}, true},
		"completed by others":       {stack.Configuration{Backend: custom, Completes: []stack.ConfigFrom{{Name: "a"}}}, stack.Configuration{Backend: custom, Completes: []stack.ConfigFrom{{Name: "b"}}}, false},
		"one cloud workspace":       {stack.Configuration{Backend: stack.Backend{Kind: stack.Remote, Cloud: &stack.Cloud{Workspace: "w"}}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Remote, Cloud: &stack.Cloud{Workspace: "w"}}}, true},
		"a file in each workdir":    {stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "local" { path = "x" }`}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "local" { path = "x" }`}}, false},
		"one file":                  {stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "local" { path = "/x" }`}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "local" { path = "/x" }`}}, true},
		"a comment":                 {stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "local" { path = "/x" }`}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: "# other\n" + `backend "local" { path = "/./x" }`}}, true},
		"a Secret by its backend":   {stack.Configuration{Backend: stack.Backend{Kind: stack.Managed, Suffix: "x"}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: "backend \"kubernetes\" {\nin_cluster_config = true\nnamespace = \"apps\"\nsecret_suffix = \"x\"\n}"}}, true},
		"a cloud by two names":      {stack.Configuration{Backend: stack.Backend{Kind: stack.Remote, Cloud: &stack.Cloud{Organization: "o", Workspace: "w"}}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: "backend \"remote\" {\norganization = \"o\"\nworkspaces { name = \"w\" }\n}"}}, true},
		"told by their environment": {stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "http" {}`}}, stack.Configuration{Backend: stack.Backend{Kind: stack.Custom, Custom: `backend "http" {}`}}, false},
	} {
		a, b := Place(tt.a, "apps"), Place(tt.b, "apps")
		if got := a != "" && a == b; got != tt.same {
			t.Errorf("%s: %q and %q, want one place: %v", name, a, b, tt.same)
		}
	}
}

// listed are the stacks of a cache with an index.
type indexed struct {
	client.Client
	found []v1alpha2.Terraform
}

func (i indexed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha2.TerraformList).Items = i.found
	return nil
}

func TestTheBetterClaimToAPlaceIsTheOlderOne(t *testing.T) {
	at := func(uid string, age time.Duration) v1alpha2.Terraform {
		o := v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
		o.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "x"}
		o.Spec.BackendConfig = &v1alpha2.BackendConfig{SecretSuffix: "shared"}
		return o
	}
	older, younger := at("older", time.Hour), at("younger", 0)
	c := newKeeper(Keeper{Cache: indexed{found: []v1alpha2.Terraform{older, younger}}}, nil)
	for _, tt := range []struct {
		obj     v1alpha2.Terraform
		applied bool
		refused bool
	}{{older, false, false}, {younger, false, true}, {younger, true, false}} {
		st, err := infra.Dialect{}.Decode(&tt.obj)
		if err != nil {
			t.Fatal(err)
		}
		if tt.applied {
			st.Status.Applied = &stack.Plan{PlanInputs: stack.PlanInputs{Shape: st.Configuration.Shape()}}
		}
		of := subject(tt.obj.Name, &tt.obj)
		of.Asked = st
		err = c.unshared(t.Context(), of, stack.PlanRun)
		if (fault.Reason(err, "") == string(stack.StateShared)) != tt.refused || tt.refused && !strings.Contains(err.Error(), "apps/older") {
			t.Errorf("%s, which applied something there: %v: %v; want it refused: %v", tt.obj.Name, tt.applied, err, tt.refused)
		}
	}
}

// F40 through all layers but the run: the pointer leads to the records.
func TestAStateBesideItsSecretIsLoaded(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	large := largeRecords(t)
	c := newKeeper(Keeper{Store: kube.States{Client: k.Client, Overflow: large, Now: time.Now}, Records: &records.Store{Blobs: large}, Events: &events{}}, k.Client)
	ref := kube.StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "big"}
	state := fmt.Appendf(nil, `{"version":4,"serial":1,"lineage":"l","noise":%q}`, noise(4<<20))
	if err := c.Store.Save(t.Context(), ref, kube.Owner{Name: "big"}, state); err != nil {
		t.Fatal(err)
	}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "big"}}
	got, err := c.load(t.Context(), subject("uid", obj), ref)
	if err != nil || !bytes.Equal(got, state) {
		t.Fatalf("load() = %d bytes, %v; want %d", len(got), err, len(state))
	}
	keys, err := large.List(t.Context(), "overflow/")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v, %v; want one state beside its Secret", keys, err)
	}
	if err := large.Delete(t.Context(), keys[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.load(t.Context(), subject("uid", obj), ref); fault.Reason(err, "") != string(stack.StateTampered) {
		t.Errorf("load() of a state whose record is gone: %v, want StateTampered", err)
	}
}

// noise is text of so many bytes that no packing makes smaller by much.
func noise(n int) string {
	b := make([]byte, n*3/4)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

func largeRecords(t *testing.T) *blob.Files {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// F37: what a former stack of the same name left is not taken over by accident.
func TestAFormerStateIsNotAdoptedByAccident(t *testing.T) {
	full := thing("l", 3)
	empty := []byte(`{"version":4,"lineage":"l","serial":4,"resources":[]}`)
	for name, tt := range map[string]struct {
		state []byte
		uid   string // of its writer
		known bool   // the stack has seen it before
		adopt bool
		want  bool // it is refused
	}{
		"a former stack's":               {full, "former", false, false, true},
		"the stack says that it goes on": {full, "former", false, true, false},
		"its own":                        {full, "uid", false, false, false},
		"of a controller before us":      {full, "", false, false, false},
		"nothing is in it":               {empty, "former", false, false, false},
		"it was taken over before":       {full, "former", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := storedAs(tt.state)
			found.Owner, found.OwnerUID = "app", tt.uid
			obj := &v1alpha2.Terraform{}
			obj.Name = "app"
			p := subject("uid", obj)
			p.Observed.Spec.AdoptState = tt.adopt
			facts, err := stack.ReadState(tt.state)
			if err != nil {
				t.Fatal(err)
			}
			if tt.known {
				p.Observed.Status.KnownState = facts.StateID
			}
			err = p.adopts(kube.StateRef{Workspace: "default", Suffix: "app"}, found, facts)
			if refused := fault.Reason(err, "") == string(stack.StateNotAdopted); refused != tt.want {
				t.Errorf("adopts() = %v, want it refused: %v", err, tt.want)
			}
		})
	}
}

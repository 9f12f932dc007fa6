package states

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

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

// A deletion adopts nothing: what the former stack of the name built is destroyed only by an
// object that was there for a run of its own. Else the first thing that a restored object
// does is to destroy, if the API server collects it because its owner was not restored.
func TestADeletedObjectAdoptsNothing(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	c := newKeeper(Keeper{Store: kube.States{Client: k.Client, Now: time.Now}, Records: openRecords(t)}, k.Client)
	ref := kube.StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "app"}
	if err := c.Store.Save(t.Context(), ref, kube.Owner{Name: "app", UID: "former"}, thing("l", 3)); err != nil {
		t.Fatal(err)
	}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "app"}}
	for name, tt := range map[string]struct {
		adopt   bool
		lastRun string
		known   bool // a run of it began with the state
		want    bool // it destroys what the state holds
	}{
		"it does not ask for the state":                {},
		"it asks, and nothing ran before its deletion": {adopt: true},
		"it asks, and a plan of it has ended":          {adopt: true, lastRun: "plan-1", want: true},
		"it took the state over":                       {lastRun: "plan-1", known: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			of := subject("uid", obj)
			of.Asked.Configuration.Backend = stack.Backend{Kind: stack.Managed, Suffix: "app"}
			of.Observed.Deleting, of.Observed.Spec.DestroyLast, of.Observed.Spec.AdoptState = true, true, tt.adopt
			of.Observed.Status.LastRun = tt.lastRun
			if tt.known {
				of.Observed.Status.KnownState = knownAs(thing("l", 3))
			}
			if err := c.Inspector.Inherit(t.Context(), of); err != nil {
				t.Fatal(err)
			}
			if got := of.Observed.Status.Created; got != tt.want {
				t.Errorf("Inherit() finds that the resources are the stack's: %v, want %v", got, tt.want)
			}
		})
	}
}

// A state that names no owner may be of the object that is deleted, and it may have come from a
// backup together with it. It is destroyed only if something ran for the object, or if a user
// accepts it; until then the object stays, and says what can be done.
func TestADeletedObjectDestroysNothingThatNamesNoOwner(t *testing.T) {
	full, sealed := thing("l", 3), []byte(`{"serial":3,"lineage":"l","meta":{"key_provider.pbkdf2.k":"e30="},"encrypted_data":"AAAA","encryption_version":"v0"}`)
	accepted := knownAs(full).Digest + "@2026-03-01T12:00:02Z"
	for name, tt := range map[string]struct {
		state                  []byte
		owner                  kube.Owner
		adopt, retain, created bool
		accept, lastRun        string
		held                   string // what is said; empty if the object is not held
		want                   bool   // it destroys what the state holds
	}{
		"of no owner":                           {state: full, held: "a state with 1 resource and names no stack"},
		"of its name":                           {state: full, owner: kube.Owner{Name: "app"}, held: "a state with 1 resource and names no stack"},
		"encrypted":                             {state: sealed, held: "an encrypted state, whose resources cannot be counted, and names no stack"},
		"a restore brought the annotation back": {state: full, adopt: true, held: "and names no stack"},
		"a user accepts another state":          {state: full, accept: "sha256:other@now", held: "and names no stack"},
		"a user accepts it":                     {state: full, accept: accepted, want: true},
		"a user retains the resources":          {state: full, retain: true},
		"something ran for it":                  {state: full, lastRun: "plan-1", want: true},
		"another controller applied it":         {state: full, created: true, want: true},
		"it is its own":                         {state: full, owner: kube.Owner{Name: "app", UID: "uid"}, want: true},
		"nothing is in it":                      {state: []byte(`{"version":4,"lineage":"l","serial":4,"resources":[]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			found := storedAs(tt.state)
			found.Owner, found.OwnerUID = tt.owner.Name, tt.owner.UID
			c := newKeeper(Keeper{Store: &shelf{found: found}, Records: openRecords(t)}, nil)
			of := subject("uid", &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}})
			of.Asked.Configuration.Backend = stack.Backend{Kind: stack.Managed, Suffix: "app"}
			of.Observed.Deleting, of.Observed.Spec.DestroyLast, of.Observed.Spec.AdoptState = true, !tt.retain, tt.adopt
			of.Observed.Spec.AcceptState, of.Observed.Status.LastRun, of.Observed.Status.Created = tt.accept, tt.lastRun, tt.created
			err := c.Inspector.Inherit(t.Context(), of)
			if held := fault.Reason(err, "") == string(stack.StateNotAdopted); held != (tt.held != "") || !held && err != nil {
				t.Fatalf("Inherit() = %v, want it held: %v", err, tt.held != "")
			}
			if got := of.Observed.Status.Created; got != tt.want {
				t.Errorf("Inherit() finds that the resources are the stack's: %v, want %v", got, tt.want)
			}
			for _, part := range []string{tt.held, "terrier state accept net", "terrier.dev/deletion=retain"} {
				if tt.held != "" && !strings.Contains(err.Error(), part) {
					t.Errorf("it says %q, want %q in it", err, part)
				}
			}
		})
	}
}

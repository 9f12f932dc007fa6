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

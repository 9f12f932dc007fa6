package states

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A stack whose state was in a backend of its own does not begin with an empty one, or with
// an old one, in the Secret that Terrier keeps.
func TestAStateThatComesFromElsewhere(t *testing.T) {
	ref := kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "net"}
	bucket := stack.LastState{Place: "d", In: `the backend aws (bucket "store")`, Lineage: "l", Serial: 5, Resources: 1, Content: "c"}
	for name, tt := range map[string]struct {
		last   stack.LastState
		known  []byte // what Terrier kept before
		found  kube.Stored
		accept string
		says   string // empty if a run may start
		event  string
	}{
		"nothing is in the Secret":              {last: bucket, says: "has no state"},
		"the state was moved":                   {last: bucket, found: storedAs(thing("l", 6)), event: "StateContinued"},
		"Terrier kept another lineage before":   {last: bucket, known: thing("m", 7), found: storedAs(thing("l", 5)), event: "StateContinued"},
		"another state is in the Secret":        {last: bucket, found: storedAs(thing("m", 9)), says: "another one (1 resource, serial 9 of the lineage m)"},
		"Terrier kept an older one":             {last: bucket, known: thing("l", 4), found: storedAs(thing("l", 4)), says: "serial 4"},
		"a user begins empty":                   {last: bucket, accept: "none@now the old account was closed", event: "StateAccepted"},
		"a user begins with the older one":      {last: bucket, known: thing("l", 4), found: storedAs(thing("l", 4)), accept: knownAs(thing("l", 4)).Digest, event: "StateAccepted"},
		"everything in the bucket is destroyed": {last: stack.LastState{Place: "d", Lineage: "l", Serial: 9}},
		"an earlier release counted nothing":    {last: stack.LastState{Place: "d", Uncounted: true}, says: "resources that were not counted"},
	} {
		t.Run(name, func(t *testing.T) {
			said := &events{}
			c := newKeeper(Keeper{Store: &shelf{found: tt.found}, Records: openRecords(t), Events: said}, nil)
			of := subject("uid", &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net"}})
			*of.Observed = stack.Observation{
				Spec:   stack.Spec{AcceptState: tt.accept, Words: words},
				Status: stack.Status{StoredState: stack.StoredState{LastState: tt.last}, Resources: stack.Resources{Created: true}},
			}
			if tt.known != nil {
				of.Observed.Status.KnownState = knownAs(tt.known)
			}
			for range 2 {
				_, err := c.load(t.Context(), of, ref)
				if tt.says == "" && err != nil || tt.says != "" && (stack.Reason(fault.Reason(err, "")) != stack.StateMissing || !strings.Contains(err.Error(), tt.says)) {
					t.Fatalf("load() = %v, want %q", err, tt.says)
				}
				if tt.says != "" && (!strings.Contains(err.Error(), "terrier state push net old.tfstate") || !strings.Contains(err.Error(), "terrier state accept net --reason")) {
					t.Errorf("it says %q, want the ways out", err)
				}
			}
			if said.last != tt.event || len(said.all) > 1 {
				t.Errorf("the events are %q, want %q", said.all, tt.event)
			}
			kept, err := record.At[kube.Forgotten](record.Retained("uid", record.ForgottenFile)).Read(t.Context(), c.Records.Blobs)
			if accepted := tt.accept != ""; accepted != (err == nil) || accepted != (len(kept.GivenUp) == 1) {
				t.Errorf("given up is %+v, %v", kept.GivenUp, err)
			}
			if tt.accept != "" {
				g := kept.GivenUp[0]
				if g.LastState != bucket || g.Now == "" || kept.Stack != "apps/net" || g.Why != stack.AcceptedWhy(tt.accept) {
					t.Errorf("given up is %+v of %s, want the state in the bucket with the reason", g, kept.Stack)
				}
			}
			if last := of.Observed.Status.LastState; (tt.says != "") != (last == tt.last) && tt.found.Digest != "" {
				t.Errorf("the last state is %+v", last)
			}
		})
	}
}

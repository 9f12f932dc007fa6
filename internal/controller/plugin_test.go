package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestPlugIn(t *testing.T) {
	for name, c := range map[string]struct {
		plugin string
		pods   bool
		status stack.Status
		kind   fault.Kind
		wrong  string
	}{
		"of Terrier":          {plugin: "aws"},
		"of the operator":     {plugin: "shelf"},
		"of a stack that is":  {plugin: "aws", status: stack.Status{Resources: stack.Resources{Applied: &stack.Plan{}}}},
		"unknown":             {plugin: "attic", kind: fault.Invalid, wrong: `unsupported backend: "attic"; there are aws, azurerm, gcs, git, http, kubernetes, local, pg, shelf`},
		"a file in a pod":     {plugin: "local", pods: true, kind: fault.Denied, wrong: "the state would be lost with the pod"},
		"a file on a machine": {plugin: "local"},
	} {
		t.Run(name, func(t *testing.T) {
			jb := &jobs{config: Config{Pods: c.pods, Backends: []string{"shelf"}}}
			p := &pass{obj: &v1alpha2.Terraform{}, st: dialect.Stack{Configuration: stack.Configuration{Backend: stack.Backend{Kind: stack.Plugin, Plugin: c.plugin}}}}
			p.obj.SetNamespace("team")
			p.o.Status = c.status
			got, err := jb.plugIn(p)
			if c.wrong != "" {
				if fault.Of(err) != c.kind || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("plugIn() = %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil || got.Name != c.plugin || got.Stack.Namespace != "team" || got.Expected != (c.status.Applied != nil) {
				t.Errorf("plugIn() = %+v, %v", got, err)
			}
		})
	}
}

// A destroy from a record asks for the state as the cluster of now: the record of an earlier
// release names no cluster, and one of adopted records names the former cluster.
func TestARecordedJobIsOfTheClusterOfNow(t *testing.T) {
	key := record.Snapshot("uid", "sha256:1")
	for name, recorded := range map[string]runner.Backend{
		"of an earlier release": {},
		"of another cluster":    {Stack: backend.Stack{Cluster: "former"}, Formerly: []string{"long-gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := func(context.Context, string) (engine.Engine, error) {
				return engine.Engine{Name: "tofu", Version: "1.11.0"}, nil
			}
			s := takeApart(&Stacks{Blobs: blobtest.Files(t, 1<<20), Engine: found, Config: Config{ClusterUID: "here", Formerly: []string{"former"}}})
			recorded.Name, recorded.Stack.Namespace, recorded.Stack.Name = "aws", "team", "network"
			if err := record.At[snapshot](key).Write(t.Context(), s.snapshots.blobs, snapshot{Job: runner.Job{Backend: &recorded}}); err != nil {
				t.Fatal(err)
			}
			p := &pass{dialect: infra.Dialect{}, id: "uid", obj: &v1alpha2.Terraform{}}
			p.obj.SetAnnotations(map[string]string{backend.AdoptStateOf: "moved"})
			p.o.Status.Snapshot = key
			if err := s.snapshots.recall(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			want := &runner.Backend{Name: "aws", Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "here"}, Formerly: []string{"former", "moved"}}
			if diff := cmp.Diff(want, p.job.Backend); diff != "" {
				t.Errorf("the recalled job asks for the state otherwise:\n%s", diff)
			}
		})
	}
}

package controller

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
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
		"unknown":             {plugin: "attic", kind: fault.Invalid, wrong: `unsupported backend: "attic"; there are aws, azurerm, gcs, http, kubernetes, local, pg, shelf`},
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

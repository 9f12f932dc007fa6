package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// What cannot be encrypted is refused by name, and not left in clear.
func TestWhatCannotBeEncrypted(t *testing.T) {
	newest := engine.Engine{Name: "tofu", Version: "1.12.6"}
	for name, tt := range map[string]struct {
		asked   bool
		engine  engine.Engine
		module  module.Root
		managed bool
		backend stack.BackendKind
		says    string
	}{
		"a state of Terrier":                         {asked: true, engine: newest, managed: true, backend: stack.Managed},
		"one of Terrier, of an old OpenTofu":         {asked: true, engine: engine.Engine{Name: "tofu", Version: "1.6.0"}, managed: true, backend: stack.Managed},
		"one in a backend of the stack's own":        {asked: true, engine: newest, backend: stack.Custom},
		"nothing asked of terraform":                 {engine: engine.Engine{Name: "terraform", Version: "1.9.0"}, backend: stack.Custom},
		"terraform":                                  {asked: true, engine: engine.Engine{Name: "terraform", Version: "1.9.0"}, managed: true, says: "terraform 1.9.0 encrypts no state"},
		"a module with an encryption of its own":     {asked: true, engine: newest, module: module.Root{Encryption: true}, managed: true, says: "encryption block of its own"},
		"a cloud":                                    {asked: true, engine: newest, backend: stack.Remote, says: "a cloud has to read"},
		"an OpenTofu that does not ask":              {asked: true, engine: engine.Engine{Name: "tofu", Version: "1.9.4"}, backend: stack.Plugin, says: "Use OpenTofu 1.10.0 or newer"},
		"an OpenTofu whose version says nothing yet": {asked: true, engine: engine.Engine{Name: "tofu", Version: "main"}, backend: stack.Plugin},
	} {
		p := &pass{st: dialect.Stack{Configuration: stack.Configuration{Encrypted: tt.asked, Backend: stack.Backend{Kind: tt.backend}}}, in: inputs{Inputs: input.Inputs{Module: tt.module}}}
		err := encryptable(p, tt.engine, tt.managed)
		if (err == nil) != (tt.says == "") || err != nil && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), encryption.Annotation)) {
			t.Errorf("%s: %v, want it to say %q", name, err, tt.says)
		}
	}
}

// A run is told how the state may be found and how it is stored, by what is known of the state.
func TestHowARunFindsAnEncryptedState(t *testing.T) {
	keys := []encryption.Key{{ID: "one"}}
	var place string
	of := sealing{func(_ context.Context, at, _ string) ([]encryption.Key, error) { place = at; return keys, nil }}.of
	here := stack.LastState{Place: "here", Encrypted: true}
	for name, tt := range map[string]struct {
		asked bool
		last  stack.LastState
		state *kube.StateRef
		want  *runner.Encryption
	}{
		"nothing asked, nothing known":            {},
		"a state of Terrier":                      {asked: true, last: here, state: &kube.StateRef{}},
		"the first run":                           {asked: true, want: &runner.Encryption{Keys: keys, Plain: true}},
		"a plain state":                           {asked: true, last: stack.LastState{Place: "here", Resources: 1}, want: &runner.Encryption{Keys: keys, Plain: true}},
		"an encrypted one":                        {asked: true, last: here, want: &runner.Encryption{Keys: keys}},
		"one that was encrypted in another place": {asked: true, last: stack.LastState{Place: "there", Encrypted: true}, want: &runner.Encryption{Keys: keys, Plain: true}},
		"the end of it":                           {last: here, want: &runner.Encryption{Keys: keys, End: true}},
		"the end, in another place":               {last: stack.LastState{Place: "there", Encrypted: true}},
	} {
		p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, st: dialect.Stack{Configuration: stack.Configuration{Encrypted: tt.asked}}, note: note{Backend: "here", State: tt.state}}
		p.obj.SetNamespace("apps")
		p.obj.SetName("net")
		p.o.Status.LastState = tt.last
		got, err := of(t.Context(), p)
		if err != nil || !cmp.Equal(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tt.want)
		}
	}
	if want := encryption.OfStack(dialect.KindOf(infra.Dialect{}), "apps", "net"); place != want {
		t.Errorf("the keys are those of %q, want %q", place, want)
	}
}

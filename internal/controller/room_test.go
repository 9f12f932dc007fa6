package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// fullRunner has no room: it says so when it is asked, or only when a run starts.
type fullRunner struct {
	runner.Runner
	late  bool
	asked int
}

var errFull = fault.New(fault.Later, runner.NoRoom, errors.New("the quota is used up"))

func (f *fullRunner) Room(context.Context, runner.Job) error {
	if f.late {
		return nil
	}
	f.asked++
	return errFull
}

func (f *fullRunner) Start(context.Context, runner.Job) error {
	f.asked++
	return errFull
}

func (f *fullRunner) Current(string) (*runner.Report, error) { return nil, nil }

// anyAccount signs in to a Vault as every ServiceAccount.
type anyAccount struct{}

func (anyAccount) Annotations(context.Context, types.NamespacedName) (map[string]string, error) {
	return map[string]string{vaults.RoleAnnotation: "app"}, nil
}

func (anyAccount) Token(context.Context, types.NamespacedName, string) (secret.Text, error) {
	return secret.New("identity"), nil
}

// readings count what was read of a Vault.
type readings struct {
	mu   sync.Mutex
	made int
}

func (r *readings) Record(_ context.Context, e audit.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Details["lease"] != "" {
		r.made++
	}
	return nil
}

// certified is a controller with the stacks of a Vault, and a pass of a stack whose runs are
// given a certificate of it.
func certified(t *testing.T, run runner.Runner, now *time.Time) (*apart, *pass, *readings) {
	t.Helper()
	s, read, key := vaulttest.StandIn(t), &readings{}, secret.New("key")
	s.Policy(t, "app", `path "pki/issue/web" { capabilities = ["update"] }`)
	s.Ask(t, http.MethodPost, "auth/jwt/role/app", map[string]any{"token_policies": "app", "token_ttl": "1h"})
	clock := func() time.Time { return *now }
	v := (&vaults.Vaults{
		Config:   vaults.Config{Server: vault.Server{URL: s.URL, HTTP: http.DefaultClient}, Method: vault.JWT, Path: "jwt", Reread: time.Minute},
		Accounts: anyAccount{}, Records: openRecords(t), Audit: read, Now: clock, Log: slog.New(slog.DiscardHandler),
	}).Open()
	c := takeApart(&Stacks{States: &lockOnly{}, Blobs: openRecords(t), Runner: run, Queue: queueOf(1), Vaults: v, Key: key, Now: clock, Log: slog.New(slog.DiscardHandler)})
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
	p.obj.SetNamespace("apps")
	p.obj.SetUID("uid")
	p.st.Configuration.Pod.Account = "runner"
	p.o.Now = *now
	resolved, err := input.Resolver{
		Reader: v.Reader(readerOf(c.jobs, p)), Key: key, Object: input.Object{Namespace: "apps"},
		Configuration: stack.Configuration{Env: []stack.EnvVar{{Name: "KEY", Secret: &stack.KeyRef{Name: "vault://pki/issue/web?common_name=a.example.com", Key: "private_key"}}}},
	}.Resolve(t.Context(), input.Module{})
	if err != nil {
		t.Fatal(err)
	}
	p.job.Env = resolved.Resolved.Environment
	return c, p, read
}

// A run that waits for room is signed in to no Vault by its identity.
func TestARunThatWaitsForRoomIsSignedInNowhere(t *testing.T) {
	for name, tt := range map[string]struct {
		late bool
		want int
	}{
		"the runner says so":              {false, 0},
		"the runner says so at the start": {true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := vaulttest.StandIn(t), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			s.Ask(t, http.MethodPost, "auth/jwt/role/apply", map[string]any{"token_policies": "app", "token_ttl": "1h"})
			clock := func() time.Time { return now }
			counted := &signIns{}
			logins := (&vaults.Vaults{Config: vaults.Config{Server: vault.Server{HTTP: &http.Client{Transport: counted}}}, Records: openRecords(t), Logins: true, Now: clock, Log: slog.New(slog.DiscardHandler)}).Open()
			full := &fullRunner{late: tt.late}
			c := takeApart(&Stacks{States: &lockOnly{}, Blobs: openRecords(t), Runner: full, Queue: queueOf(1), Identities: issued{&Identified{}}, Logins: logins, Now: clock, Log: slog.New(slog.DiscardHandler)})
			p := identified("team-a")
			p.id, p.entry, p.job, p.note = "uid", &entry{id: "uid"}, &runner.Job{}, note{State: &kube.StateRef{}}
			p.st.Configuration.Identity = &identity.Request{Vault: &identity.Vault{Address: s.URL.String(), Role: "apply", Login: true}}
			for range 20 {
				p.o.Run, p.o.Now, p.recheck = nil, now, 0
				if err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, ""); err != nil || p.o.Queued == "" {
					t.Fatalf("launch() = %v, and it waits for %q", err, p.o.Queued)
				}
				now = now.Add(5 * time.Second) // 100 seconds in all
			}
			if counted.n > tt.want || full.asked == 0 {
				t.Errorf("of a runner that was asked %d times and had no room, the run was signed in %d times, want at most %d", full.asked, counted.n, tt.want)
			}
			if err := logins.Release(t.Context(), "uid"); err != nil {
				t.Error(err)
			}
			if left := s.Accessors(t, "app"); len(left) > 0 {
				t.Errorf("%d sessions of runs that did not begin are left", len(left))
			}
		})
	}
}

// signIns count the requests that sign in.
type signIns struct{ n int }

func (s *signIns) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/login") {
		s.n++
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A run that waits for room is made no credentials, and where the runner says only at the
// start that there is none, the attempts become rare.
func TestARunThatWaitsForRoomIsMadeNoCredentials(t *testing.T) {
	for name, tt := range map[string]struct {
		late bool
		want int
	}{
		"the runner says so":              {false, 0},
		"the runner says so at the start": {true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			full := &fullRunner{late: tt.late}
			c, p, read := certified(t, full, &now)
			for range 20 {
				p.o.Run, p.o.Now, p.recheck = nil, now, 0
				if err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, ""); err != nil || p.o.Queued == "" {
					t.Fatalf("launch() = %v, and it waits for %q", err, p.o.Queued)
				}
				now = now.Add(5 * time.Second) // 100 seconds in all
			}
			if read.made > tt.want || full.asked == 0 {
				t.Errorf("of a runner that was asked %d times and had no room, %d credentials were made, want at most %d", full.asked, read.made, tt.want)
			}
		})
	}
}

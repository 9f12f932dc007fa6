package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// streets are shops with a stack each, one of which gets changes before the
// others do.
type streets struct {
	*example
	w *testkit.World
}

const (
	early = "crow"  // the one that is asked first, and the last by name
	extra = "added" // what a change adds, and the provider refuses
)

// A change that breaks a stack stops at the shop that was to show that, says why and
// what to do, and holds up no new one. It is taken back there, with nothing done to
// the others; or goes on all the same; or is fixed, and goes to the first shop
// first.
func TestAChangeStopsAtTheFirstWave(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--sqlite-dir", os.TempDir())
	s := streets{&example{Cluster: p.Cluster(t), platform: p, template: "web", database: filepath.Join(t.TempDir(), "rows.db")}, p.World(t)}
	s.open(t, "acme", "bolt", early)
	s.Kubectl(t, "label", "tenants", early+"-web", "channel=early")
	others := []string{"acme", "bolt"}
	before, calls := s.versions(t, others...), s.calls(others...)
	good := s.theTemplate(t).Generation

	s.w.Fault(testkit.WorldFault{Call: "create", Name: extra, Do: "fail"})
	s.change(t, "v2", true)
	t.Run("it stops", func(t *testing.T) {
		bad := s.stopped(t)
		if got, want := s.valueOf(t, early), "v2"; got != want {
			t.Errorf("the world has %q of %s, want %q: the change broke half-way", got, early, want)
		}
		out := s.Terrier(t, "rollout", "status", "web")
		for _, want := range []string{
			"Failed", "canary (of canary)", fmt.Sprintf("stopped after 1 of 3 tenants: %s-web failed with generation %d", early, bad),
			"terrier rollout undo TEMPLATE", "terrier rollout resume TEMPLATE", early + "-web  ", "as told",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("terrier rollout status says\n%s\nwant %q in it", out, want)
			}
		}
	})
	t.Run("new rows get the last good generation", func(t *testing.T) {
		s.add(t, "dawn")
		s.AwaitReady(t, "dawn")
		if got := s.generationOf(t, "dawn"); got != good || s.valueOf(t, "dawn") != "v1" {
			t.Errorf("the new tenant has generation %d and %q, want %d and v1", got, s.valueOf(t, "dawn"), good)
		}
	})
	t.Run("it is taken back", func(t *testing.T) {
		id := s.w.Named(early)[0].ID
		s.Terrier(t, "rollout", "undo", "web", "--yes")
		s.complete(t)
		if all := s.w.Named(early); len(all) != 1 || all[0].ID != id || *all[0].Value != "v1" {
			t.Errorf("of %s the world has %+v, want what was there, with v1", early, all)
		}
		s.same(t, "versions of the stacks", s.versions(t, others...), before)
		s.same(t, "calls to the world", s.calls(others...), calls)
	})
	t.Run("it goes on all the same", func(t *testing.T) {
		s.change(t, "v2", true)
		s.stopped(t)
		s.same(t, "calls to the world", s.calls(others...), calls)
		s.w.Fault()
		s.Terrier(t, "rollout", "resume", "web")
		for _, uid := range []string{"acme", "bolt", "dawn"} {
			s.reached(t, uid, "v2")
		}
		if out := s.TryTerrier(t, "rollout", "resume", "web"); out.Code != 5 || !strings.Contains(out.Stderr, "no rollout of the template") {
			t.Errorf("to resume it again ends with %d and says %q, want that none has stopped", out.Code, out.Stderr)
		}
	})
	t.Run("it is mended", func(t *testing.T) {
		seen := len(s.w.Calls())
		s.change(t, "v3", false)
		s.complete(t)
		var order []string
		for _, c := range s.w.Calls()[seen:] {
			if c.Call == "update" && c.Phase == "done" {
				order = append(order, c.Name)
			}
		}
		if len(order) != 4 || order[0] != early {
			t.Errorf("the world was changed for %v, want all four, %s first", order, early)
		}
	})
	s.close(t)
}

// open makes a registry, a template and the tenants of some rows, and waits
// until all of them are ready.
func (s streets) open(t *testing.T, uids ...string) {
	t.Helper()
	var err error
	if s.rows, err = sql.Open("sqlite", s.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.rows.Close() })
	s.sql(t, "CREATE TABLE shops (id TEXT PRIMARY KEY, url TEXT, active INTEGER)")
	for _, uid := range uids {
		s.add(t, uid)
	}
	s.Apply(t, fmt.Sprintf(`
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: shops}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: shops}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
`, s.database))
	s.change(t, "v1", false)
	s.complete(t)
}

// close deletes the tenants, so that no controller creates their stacks again. The
// stacks stay, since the witness has to see the reports of their runs.
func (s streets) close(t *testing.T) {
	t.Helper()
	s.Terrier(t, "suspend", "tenantregistry/shops")
	s.Kubectl(t, "delete", "tenants", "--all", "--timeout=5m")
}

func (s streets) add(t *testing.T, uid string) {
	t.Helper()
	s.sql(t, "INSERT INTO shops VALUES (?, 'https://' || ? || '.example.com', 1)", uid, uid)
}

// change gives the template's stack another value, and one thing more if more.
func (s streets) change(t *testing.T, value string, more bool) {
	t.Helper()
	hcl := things(s.w, value, "{{ .uid }}")
	hcl = strings.Replace(hcl, `resource "world_thing" "{{ .uid }}"`, `resource "world_thing" "shop"`, 1)
	if more {
		hcl += fmt.Sprintf("\nresource \"world_thing\" \"more\" {\n  name       = %q\n  depends_on = [world_thing.shop]\n}\n", extra)
	}
	s.Apply(t, `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: shops
  rollout: {waves: [{name: canary, selector: {matchLabels: {channel: early}}}]}
  manifests:
  - id: stack
    nameTemplate: "{{ .uid }}"
    deletionPolicy: Retain
    spec:
      apiVersion: infra.contrib.fluxcd.io/v1alpha2
      kind: Terraform
      spec:
        interval: 1h
        remediation: {retries: 0}
        values:
          hcl: |
`+indent(12, hcl)+"\n")
}

// theTemplate is the template as it is stored now.
func (s streets) theTemplate(t *testing.T) *tenantsv1.TenantTemplate {
	t.Helper()
	var o tenantsv1.TenantTemplate
	s.get(t, "TenantTemplate", s.template, &o)
	return &o
}

// awaitRollout waits until the rollout of the newest generation has come to a
// phase.
func (s streets) awaitRollout(t *testing.T, phase string) (generation int64) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the rollout is "+phase, func(context.Context) error {
		o := s.theTemplate(t)
		generation = o.Generation
		if r := o.Status.Rollout; r == nil || r.TargetGeneration != generation || r.Phase != phase {
			return fmt.Errorf("generation %d: %+v", generation, r)
		}
		return nil
	})
	return generation
}

func (s streets) stopped(t *testing.T) int64 { return s.awaitRollout(t, tenantsv1.RolloutFailed) }

// complete waits until all tenants are ready with the newest generation.
func (s streets) complete(t *testing.T) {
	t.Helper()
	generation := s.awaitRollout(t, tenantsv1.RolloutComplete)
	if r := s.theTemplate(t).Status.Rollout; r.GoodGeneration != generation || r.FailedNodes != 0 || r.ReadyUpdatedNodes != r.TotalNodes {
		t.Errorf("the rollout is complete with %+v, want every tenant ready with generation %d", r, generation)
	}
}

// reached waits until the stack of a tenant is ready with a value.
func (s streets) reached(t *testing.T, uid, value string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, uid+" has "+value, func(context.Context) error {
		if got := s.valueOf(t, uid); got != value {
			return fmt.Errorf("it has %q", got)
		}
		return testkit.IsReady(s.Stack(t, uid))
	})
}

func (s streets) valueOf(t *testing.T, uid string) string {
	t.Helper()
	all := s.w.Named(uid)
	if len(all) != 1 {
		t.Fatalf("of %s the world has %+v, want one thing", uid, all)
	}
	return *all[0].Value
}

func (s streets) generationOf(t *testing.T, uid string) int64 {
	t.Helper()
	var o tenantsv1.Tenant
	s.get(t, "Tenant", uid+"-web", &o)
	var n int64
	if err := json.Unmarshal([]byte(o.Annotations[tenantsv1.AnnotationTemplateGeneration]), &n); err != nil {
		t.Fatalf("reading the generation of %s: %v", uid, err)
	}
	return n
}

// versions are the stacks' UIDs and resource versions, which any write changes.
func (s streets) versions(t *testing.T, uids ...string) []string {
	t.Helper()
	var all []string
	for _, uid := range uids {
		o := s.Stack(t, uid)
		all = append(all, fmt.Sprintf("%s %s %s", uid, o.UID, o.ResourceVersion))
	}
	return all
}

// calls are the calls of the provider for these, drift checks among them.
func (s streets) calls(uids ...string) []string {
	var all []string
	for _, c := range s.w.Calls() {
		if slices.Contains(uids, c.Name) {
			all = append(all, c.Call+" "+c.Phase+" "+c.Name)
		}
	}
	return all
}

func (s streets) same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the %s are\n%s\nwant what they were:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

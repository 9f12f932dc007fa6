package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The first tenants of a new user: three of them, made of the rows of a table. The
// commands that are printed beside them work as they are printed: a row that is
// added is a tenant, one that is switched off is destroyed, and an emptied table
// deletes nothing until a user allows it.
func TestTenantsExample(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--quickstart")
	c := shops{p.In(t, "tenants")}
	var printed []string
	testkit.Eventually(t, testkit.Patience, "the steps are printed", func(context.Context) error {
		if printed = tenantsSteps(p); len(printed) < 5 {
			return errNot("five commands")
		}
		return nil
	})
	list, insert, deactivate, empty, rows := printed[0], printed[1], printed[2], printed[3], printed[4]

	for _, name := range []string{"acme-shop", "bolt-shop", "crow-shop"} {
		if want := "terrier:   " + name + ": 2 of 2 resources are ready"; !strings.Contains(p.Log(), want) {
			t.Errorf("starting up does not say %q", want)
		}
	}
	if out := c.Shell(t, list); !strings.Contains(out, "3 tenants: 3 ready.") {
		t.Errorf("%s shows\n%s\nwant three tenants", list, out)
	}
	c.made(t, "acme", "100")
	c.made(t, "bolt", "5")

	c.sql(t, insert, 1)
	c.AwaitReady(t, "dawn-database")
	c.made(t, "dawn", "5")

	c.sql(t, deactivate, 1)
	c.gone(t, "acme")
	awaitEvents(t, c.Cluster, "acme-database", " TerraformDestroySucceed ")

	c.sql(t, empty, 4)
	c.Terrier(t, "rows", "customers", "--now")
	for _, command := range []string{rows, list} {
		out := c.Shell(t, command)
		for _, want := range []string{"3 deletions blocked", "NoRows", "terrier rows customers"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s shows\n%s\nwant %q in it", command, out, want)
			}
		}
	}
	for _, uid := range []string{"bolt", "crow", "dawn"} {
		c.made(t, uid, "5")
		if s := c.Stack(t, uid+"-database"); !s.DeletionTimestamp.IsZero() {
			t.Errorf("the stack of %s is being deleted", uid)
		}
	}

	c.Terrier(t, "rows", "customers", "--allow", "--yes")
	c.Terrier(t, "rows", "customers", "--now")
	for _, uid := range []string{"bolt", "crow", "dawn"} {
		c.gone(t, uid)
	}
}

// tenantsSteps lists the commands about tenants that are printed at the end.
func tenantsSteps(p *testkit.Platform) []string {
	_, printed, _ := strings.Cut(p.Log(), "Three rows of a table")
	printed, _, ended := strings.Cut(printed, "Ctrl-C")
	var commands []string
	for line := range strings.Lines(printed) {
		if command, ok := strings.CutPrefix(line, "  "); ok && ended {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// shops are the tenants of the example.
type shops struct{ *testkit.Cluster }

// sql runs a printed command as a person would, with what Go has compiled before.
func (c shops) sql(t *testing.T, command string, changed int) {
	t.Helper()
	var exports strings.Builder
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "CGO_ENABLED"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatalf("asking go for %s: %v", name, err)
		}
		fmt.Fprintf(&exports, "export %s='%s'; ", name, strings.TrimSpace(string(value)))
	}
	if got, want := c.Shell(t, exports.String()+command), fmt.Sprintf("rows changed: %d\n", changed); got != want {
		t.Fatalf("%s says %q, want %q", command, got, want)
	}
}

// made checks what a tenant has: a stack, what it outputs, and its settings.
func (c shops) made(t *testing.T, uid, gigabytes string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the tenant "+uid+" is ready", func(context.Context) error {
		if ready := c.TryTerrier(t, "tenants", "-o", "json", "--not-ready"); strings.Contains(ready.Stdout, uid+"-shop") || !c.tenant(t, uid) {
			return errNot("such a tenant")
		}
		return nil
	})
	outputs := c.Secret(t, uid+"-database")
	if outputs["name"] != "shop_"+uid || outputs["gigabytes"] != gigabytes {
		t.Errorf("the stack of %s outputs %v, want its name and %s gigabytes", uid, outputs, gigabytes)
	}
	var settings corev1.ConfigMap
	c.Get(t, uid+"-settings", &settings)
	if want := uid + ".example.com"; settings.Data["host"] != want {
		t.Errorf("the settings of %s are %v, want the host %s", uid, settings.Data, want)
	}
}

// gone waits until nothing of a tenant is left.
func (c shops) gone(t *testing.T, uid string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the tenant "+uid+" is gone", func(context.Context) error {
		if c.tenant(t, uid) {
			return errNot("the end of it")
		}
		return nil
	})
	if c.Exists(t, uid+"-database", &infrav1alpha2.Terraform{}) || c.Exists(t, uid+"-settings", &corev1.ConfigMap{}) {
		t.Errorf("the tenant %s is gone, and what it had is not", uid)
	}
}

func (c shops) tenant(t *testing.T, uid string) bool {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(tenantsv1.GroupVersion.WithKind(tenantsv1.TenantKind))
	return c.Exists(t, uid+"-shop", u)
}

// The table is the person's: starting again leaves it as it is.
func TestTheTableOfTheExampleIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := testkit.NewPlatform(testkit.PlatformOptions{Dir: filepath.Join(dir, "platform"), Flags: []string{"--quickstart"}, Cold: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(p.Dir, "customers.db")
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("not even a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "it says what it cannot read, and goes on", func(context.Context) error {
		if len(tenantsSteps(p)) == 0 || !strings.Contains(p.Log(), "terrier:   customers: ") {
			return errNot("such a line")
		}
		return nil
	})
	if got, err := os.ReadFile(file); err != nil || string(got) != "not even a database" {
		t.Errorf("the file holds %q (%v)", got, err)
	}
}

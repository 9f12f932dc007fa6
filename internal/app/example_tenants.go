package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/examples/tenants"
)

const (
	tenantsNamespace = "tenants"
	tenantsRegistry  = "customers"
)

// customersFile is the database of the tenants' example, below the data
// directory.
const customersFile = "customers.db"

// tenantsTime bounds the wait for tenants, whose table the user may have changed.
const tenantsTime = 2 * time.Minute

// makeCustomers creates the table of the tenants' example. An existing file is
// kept, whatever it contains.
func makeCustomers(ctx context.Context, dir string) error {
	path := filepath.Join(dir, customersFile)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	table, err := fs.ReadFile(tenants.Files, "customers.sql")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "customers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, customersFile)
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: made}).String()) // package rows brings the driver
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, string(table))
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	// A link appears completely or not at all, and replaces no other file.
	if err := os.Link(made, path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// applyTenants creates the table and applies the objects that read it.
func (q example) applyTenants(ctx context.Context, r Ready, c client.Client) error {
	if err := makeCustomers(ctx, r.DataDir); err != nil {
		return fmt.Errorf("creating the table: %w", err)
	}
	fill := strings.NewReplacer("DATABASE", strconv.Quote(filepath.Join(r.DataDir, customersFile)))
	if err := createNamespace(ctx, c, tenantsNamespace); err != nil {
		return err
	}
	return create(ctx, c, tenants.Files, fill, "registry.yaml", "template.yaml")
}

// awaitTenants waits until the tenants match their rows, and prints each
// tenant that becomes ready. If they do not, it prints the reason and continues:
// the user may have changed the rows on purpose.
func (q example) awaitTenants(ctx context.Context, c client.Reader) {
	within, cancel := context.WithTimeout(ctx, tenantsTime)
	defer cancel()
	seen := tenantsSeen{}
	err := wait.PollUntilContextCancel(within, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := seen.poll(ctx, c); err != nil {
			return false, err
		}
		for _, name := range seen.news {
			q.say("  %s: %s", name, seen.ready[name])
		}
		return seen.settled(), nil
	})
	switch {
	case ctx.Err() != nil:
	case err != nil && within.Err() != nil:
		q.say("  not all tenants are ready: %s tenants -n %s --not-ready", q.program, tenantsNamespace)
	case err != nil:
		q.say("  the tenants could not be read: %v", err)
		q.say("    next step: %s tenants -n %s", q.program, tenantsNamespace)
	case seen.trouble() != "":
		q.say("  %s: %s", tenantsRegistry, seen.trouble())
		q.say("    next step: %s rows %s -n %s", q.program, tenantsRegistry, tenantsNamespace)
	}
}

// tenantsSeen is the last known status of the tenants.
type tenantsSeen struct {
	registry tenantsv1.TenantRegistry
	ready    map[string]string // message of each ready tenant, by name
	news     []string          // tenants that became ready since the previous poll
}

func (s *tenantsSeen) poll(ctx context.Context, c client.Reader) error {
	s.registry = tenantsv1.TenantRegistry{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: tenantsNamespace, Name: tenantsRegistry}, &s.registry); err != nil {
		return err
	}
	var list tenantsv1.TenantList
	if err := c.List(ctx, &list, client.InNamespace(tenantsNamespace)); err != nil {
		return err
	}
	before := s.ready
	s.ready, s.news = map[string]string{}, nil
	for _, t := range list.Items {
		cond := meta.FindStatusCondition(t.Status.Conditions, "Ready")
		if cond == nil || cond.Status != "True" || !t.DeletionTimestamp.IsZero() {
			continue
		}
		s.ready[t.Name] = cond.Message
		if _, known := before[t.Name]; !known {
			s.news = append(s.news, t.Name)
		}
	}
	slices.Sort(s.news)
	return nil
}

// settled reports that the wait is over: all tenants are ready, or
// the registry has a problem.
func (s *tenantsSeen) settled() bool {
	status := s.registry.Status
	if status.ObservedGeneration != s.registry.Generation {
		return false
	}
	if s.trouble() != "" {
		return true
	}
	return status.LastRead != nil && status.ReferencingTemplates > 0 && len(s.ready) >= int(status.Desired)
}

// trouble is the problem of the registry, if it has one.
func (s *tenantsSeen) trouble() string {
	status := s.registry.Status
	if status.Blocked != nil {
		return status.Blocked.Message
	}
	if cond := meta.FindStatusCondition(status.Conditions, "Ready"); cond != nil && cond.Status == "False" {
		return cond.Message
	}
	return ""
}

// tellTenants is what to try with the tenants.
func (q example) tellTenants(r Ready) string {
	file := filepath.Join(r.DataDir, customersFile)
	statement := "go run ./examples/tenants/sql"
	if here, err := filepath.Abs(filepath.Join(".terrier", customersFile)); err != nil || here != file {
		statement += " -file " + file
	}
	return fmt.Sprintf(`
Three rows of a table are tenants, each with a stack and dependent objects. The table
is %[1]s. Change it, and list the tenants:

  %[2]s tenants -n %[3]s
  %[4]s "INSERT INTO customers (id, url) VALUES ('dawn', 'https://dawn.example.com')"
  %[4]s "UPDATE customers SET active = 0 WHERE id = 'acme'"
  %[4]s "DELETE FROM customers"
  %[2]s rows customers -n %[3]s
`, file, q.program, tenantsNamespace, statement)
}

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

// tenantsTime bounds the wait for tenants that the person may have changed since.
const tenantsTime = 2 * time.Minute

// makeCustomers makes the table of the tenants' example. A file that is there is
// somebody's, whatever it holds.
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
	// A link is there whole or not at all, and takes no other file's place.
	if err := os.Link(made, path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// applyTenants makes the table and applies what reads it.
func (q example) applyTenants(ctx context.Context, r Ready, c client.Client) error {
	if err := makeCustomers(ctx, r.DataDir); err != nil {
		return fmt.Errorf("making the table: %w", err)
	}
	fill := strings.NewReplacer("DATABASE", strconv.Quote(filepath.Join(r.DataDir, customersFile)))
	if err := createNamespace(ctx, c, tenantsNamespace); err != nil {
		return err
	}
	return create(ctx, c, tenants.Files, fill, "registry.yaml", "template.yaml")
}

// awaitTenants waits until the tenants are what their rows say, and tells of each
// one as it becomes ready. What keeps them from it is told, and stops nothing: the
// rows are the person's, who may have made it so.
func (q example) awaitTenants(ctx context.Context, c client.Reader) {
	within, cancel := context.WithTimeout(ctx, tenantsTime)
	defer cancel()
	seen := tenantsSeen{}
	err := wait.PollUntilContextCancel(within, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := seen.look(ctx, c); err != nil {
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
		q.say("  the tenants could not be looked at: %v", err)
		q.say("    to look again: %s tenants -n %s", q.program, tenantsNamespace)
	case seen.trouble() != "":
		q.say("  %s: %s", tenantsRegistry, seen.trouble())
		q.say("    what to do: %s rows %s -n %s", q.program, tenantsRegistry, tenantsNamespace)
	}
}

// tenantsSeen is what the last look at the tenants has found.
type tenantsSeen struct {
	registry tenantsv1.TenantRegistry
	ready    map[string]string // what a ready tenant says, by its name
	news     []string          // those that have become ready since the look before
}

func (s *tenantsSeen) look(ctx context.Context, c client.Reader) error {
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

// settled says that nothing more is to be waited for: all tenants are ready, or
// the registry says why it does not go on.
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

// trouble is what holds the registry up, if anything does.
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

// tellTenants says what to try with them.
func (q example) tellTenants(r Ready) string {
	file := filepath.Join(r.DataDir, customersFile)
	statement := "go run ./examples/tenants/sql"
	if here, err := filepath.Abs(filepath.Join(".terrier", customersFile)); err != nil || here != file {
		statement += " -file " + file
	}
	return fmt.Sprintf(`
Three rows of a table are tenants, each with a stack and what depends on it. The
table is %[1]s, and yours. Change it, and look:

  %[2]s tenants -n %[3]s
  %[4]s "INSERT INTO customers (id, url) VALUES ('dawn', 'https://dawn.example.com')"
  %[4]s "UPDATE customers SET active = 0 WHERE id = 'acme'"
  %[4]s "DELETE FROM customers"
  %[2]s rows customers -n %[3]s
`, file, q.program, tenantsNamespace, statement)
}

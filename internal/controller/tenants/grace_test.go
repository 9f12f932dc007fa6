package tenants

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// clock is a time that a test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }
func (c *clock) set(options *Options) { options.Now = c.now }
func (o *office) leaving(n string) string {
	o.t.Helper()
	t := o.tenants()[n]
	return t.Annotations[tenantsv1.AnnotationLeaving]
}

// marked reads the rows until a tenant is marked as leaving. A read before the
// controller's cache has the tenant marks nothing, and the next one does.
func (o *office) marked(n string) {
	o.t.Helper()
	o.eventually("the tenant "+n+" is marked", func() error {
		if o.leaving(n) != "" {
			return nil
		}
		o.sync()
		return errors.New("it has no mark")
	})
}

// One unlucky read destroys no tenant: a registry that says nothing about it waits
// for a minute, and says when the minute is over. A controller that starts again
// waits for the rest of it.
func TestOneUnluckyReadKeepsTheTenants(t *testing.T) {
	for what, lose := range map[string]func(*office){
		"inactive": func(o *office) { o.set("a001", "https://a001.example.com", "0", "gold") },
		"missing":  func(o *office) { o.delete("a001") },
	} {
		t.Run(what, func(t *testing.T) {
			var c clock
			o := newOffice(t, c.set)
			o.insert(3)
			o.open("guard: {}")
			if g := o.registry().Spec.Guard.GracePeriod; g == nil || g.Duration != time.Minute {
				t.Errorf("the default of guard.gracePeriod is %v, want a minute", g)
			}
			o.sync()
			all := []string{"a000-web", "a001-web", "a002-web"}
			o.wantTenants("with three rows", all...)
			was := o.tenants()["a001-web"].UID

			lose(o)
			o.marked("a001-web")
			tn := o.tenants()["a001-web"]
			l := tenantapi.Leaving(&tn)
			if l == nil || l.Due.Sub(l.Since) != time.Minute {
				t.Fatalf("the annotation is %q", o.leaving("a001-web"))
			}
			said := fmt.Sprintf("its row is %s since %s; the tenant is deleted at %s unless the row ", what, l.Since.Format(time.RFC3339), l.Due.Format(time.RFC3339))
			if !slices.ContainsFunc(o.heard.said(), func(e string) bool { return strings.HasPrefix(e, "Warning TenantLeaving "+said) }) {
				t.Errorf("the events are %v, want one that says %q", o.heard.said(), said)
			}

			o.set("a001", "https://a001.example.com", "1", "gold")
			o.sync()
			if got := o.leaving("a001-web"); got != "" || o.tenants()["a001-web"].UID != was {
				t.Errorf("after the row returned the annotation is %q, want the same tenant without it", got)
			}
			if o.heard.count("TenantStays") != 1 {
				t.Errorf("the events are %v, want one that it stays", o.heard.said())
			}

			lose(o)
			o.marked("a001-web")
			marked := o.leaving("a001-web")
			c.pass(50 * time.Second)
			o.restart()
			r := o.sync()
			if got := o.leaving("a001-web"); got != marked || r.Status.Leaving != 1 || r.Status.Desired != 2 {
				t.Errorf("after a restart the annotation is %q, want %q; %d leave, %d are desired", got, marked, r.Status.Leaving, r.Status.Desired)
			}
			c.pass(11 * time.Second)
			o.sync()
			o.wantTenants("after the minute", "a000-web", "a002-web")
		})
	}
}

// A row that returns with an error ends the wait, as one that returns whole: the
// next unlucky read is the first one again, days later.
func TestARowThatReturnsWithAnErrorEndsTheWait(t *testing.T) {
	var c clock
	o := newOffice(t, c.set)
	o.insert(3)
	o.open("guard: {}")
	o.sync()
	o.delete("a001")
	o.marked("a001-web")
	o.set("a001", "", "1", "gold") // hostOrUrl is empty
	o.sync()
	if got := o.leaving("a001-web"); got != "" || o.heard.count("TenantStays") != 1 {
		t.Errorf("the annotation is %q, and the events are %v", got, o.heard.said())
	}
	o.delete("a001")
	c.pass(72 * time.Hour)
	o.sync()
	tn, there := o.tenants()["a001-web"]
	if l := tenantapi.Leaving(&tn); !there || l == nil || c.now().Sub(l.Since) > time.Hour {
		t.Errorf("after one read without the row, days later, the tenant is there: %t, and leaves: %+v", there, l)
	}
}

func (r *rumours) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// An edit of the grace period counts for tenants that are leaving already.
func TestAnEditedGracePeriodMovesTheDeletion(t *testing.T) {
	var c clock
	o := newOffice(t, c.set)
	o.insert(3)
	o.open("guard: {gracePeriod: 1h}")
	o.sync()
	o.set("a001", "https://a001.example.com", "0", "gold")
	o.sync()
	c.pass(time.Minute)
	o.change(func(r *tenantsv1.TenantRegistry) {
		r.Spec.Guard.GracePeriod = &metav1.Duration{Duration: 2 * time.Minute}
	})
	o.eventually("the tenant says when it is deleted", func() error {
		tn := o.tenants()["a001-web"]
		if l := tenantapi.Leaving(&tn); l == nil || l.Due.Sub(l.Since) != 2*time.Minute {
			return fmt.Errorf("the annotation is %q", o.leaving("a001-web"))
		}
		return nil
	})
	c.pass(time.Minute)
	o.sync()
	o.wantTenants("after two minutes", "a000-web", "a002-web")
}

// Every ready tenant is a desired one: tenants whose rows have errors stay, and
// count.
func TestTenantsOfRowsWithErrorsAreDesired(t *testing.T) {
	o := newOffice(t)
	o.insert(4)
	o.open()
	o.sync()
	o.tenantsAreReady()
	o.eventually("all are ready", func() error {
		if n := o.registry().Status.Ready; n != 4 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	o.set("a001", "", "1", "gold") // hostOrUrl is empty
	o.table.with(func() { o.table.odd = [][4]string{{"a002", "https://again.example.com", "1", ""}} })
	s := o.sync().Status
	if s.Desired != 4 || s.Kept != 2 || s.Ready != 4 || s.RowErrorCount != 2 {
		t.Errorf("desired %d, kept %d, ready %d, errors %d; want 4, 2, 4, 2", s.Desired, s.Kept, s.Ready, s.RowErrorCount)
	}
	c := o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionTrue, "DatabaseConnected")
	if want := "the query returned 5 rows, 2 of them active and 3 invalid"; c.Message != want {
		t.Errorf("the message is %q, want %q", c.Message, want)
	}
}

// A dry run says what would be deleted, although it marks no tenant, so that no
// grace period ever ends.
func TestADryRunTellsOfDeletions(t *testing.T) {
	o := newOffice(t)
	o.insert(3)
	o.open("guard: {}")
	o.sync()
	o.change(func(r *tenantsv1.TenantRegistry) { r.Spec.DryRun = true })
	o.set("a000", "https://a000.example.com", "1", "silver")
	o.set("a001", "https://a001.example.com", "0", "gold")
	for range 2 {
		want := &tenantsv1.Changes{Update: 1, Delete: 1, Tenants: []string{"-a001-web", "~a000-web"}}
		if diff := cmp.Diff(want, o.sync().Status.DryRun); diff != "" {
			t.Errorf("the dry run (-want +got):\n%s", diff)
		}
	}
	if got := o.leaving("a001-web"); got != "" {
		t.Errorf("a dry run marks a tenant with %q", got)
	}
}

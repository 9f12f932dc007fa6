package query

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Registry is what is known of the rows of a database and of what follows.
type Registry struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Source    string    `json:"source"` // in words; no password is in it
	Interval  string    `json:"syncInterval"`
	Created   time.Time `json:"created"`
	Handled   string    `json:"handledRequest,omitempty"` // the newest request to read the rows that was answered
	Suspended bool      `json:"suspended,omitempty"`

	Ready   string            `json:"ready"` // True, False or Unknown
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Since   time.Time         `json:"since,omitzero"`
	Means   meaning.Situation `json:"means"`

	LastRead time.Time `json:"lastRead,omitzero"` // the last complete one that found something else than the one before
	Rows     int       `json:"rows"`
	Active   int       `json:"active"`
	Mark     string    `json:"highWaterMark,omitempty"`

	Templates   int           `json:"templates"`
	Desired     int           `json:"desired"`
	Kept        int           `json:"kept,omitempty"` // of the desired ones: no valid, active row asks for them
	ReadyNow    int           `json:"readyTenants"`
	Failed      int           `json:"failedTenants"`
	Leaving     int           `json:"leaving,omitempty"`
	RowErrors   int           `json:"rowErrors,omitempty"`
	FirstErrors []RowError    `json:"firstRowErrors,omitempty"`
	Warnings    int           `json:"rowWarnings,omitempty"`
	FirstWarned []RowWarning  `json:"firstRowWarnings,omitempty"`
	Blocked     *BlockedSet   `json:"blocked,omitempty"`
	DryRun      bool          `json:"dryRun,omitempty"`
	WouldChange *WouldChange  `json:"wouldChange,omitempty"` // by the last read of a dry run
	Departed    []Departed    `json:"departed,omitempty"`
	Grace       time.Duration `json:"gracePeriod,omitempty"` // nanoseconds
	Keeps       bool          `json:"keepsVanished,omitempty"`
	Conditions  []Condition   `json:"conditions,omitempty"`
}

// RowError is a row that no tenant can be made of.
type RowError struct {
	UID     string    `json:"uid,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Next    time.Time `json:"nextAttempt,omitzero"` // of what the API server refused
}

// RowWarning is something to know of a row that is valid.
type RowWarning struct {
	UID     string `json:"uid,omitempty"`
	Message string `json:"message"`
}

// BlockedSet are deletions that a guard has stopped. Token stands for exactly
// this set.
type BlockedSet struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Count   int       `json:"count"`
	Tenants []string  `json:"tenants,omitempty"` // the first of them
	Token   string    `json:"token,omitempty"`
	Allowed bool      `json:"allowed,omitempty"` // a user allowed the deletions, which follow with the next read
}

// WouldChange is what a dry run would have done.
type WouldChange struct {
	Create  int      `json:"create"`
	Update  int      `json:"update"`
	Delete  int      `json:"delete"`
	Tenants []string `json:"tenants,omitempty"` // the first of them, with +, ~ or - before each
}

// Departed is a row whose tenants went because it became inactive, or was gone.
type Departed struct {
	UID   string    `json:"uid"`
	At    time.Time `json:"at"`
	Count int       `json:"count"`
}

// Key names r.
func (r Registry) Key() Key { return Key{Namespace: r.Namespace, Name: r.Name} }

// Registry returns what is known of a registry. The rows themselves are seen by
// the controller alone: a person needs no credential of the database for this.
func (t *Tenants) Registry(ctx context.Context, key Key) (Registry, error) {
	o, err := t.RegistryObject(ctx, key)
	if err != nil {
		return Registry{}, err
	}
	return RegistryOf(o), nil
}

func RegistryOf(o *tenantsv1.TenantRegistry) Registry {
	s := &o.Status
	v := Registry{
		Namespace: o.Namespace, Name: o.Name, Source: sourceText(&o.Spec.Source), Interval: o.Spec.Source.SyncInterval,
		Created: o.CreationTimestamp.Time, Handled: o.Status.LastHandledSync, Suspended: o.Spec.Suspend, Ready: string(metav1.ConditionUnknown),
		Templates: int(s.ReferencingTemplates), Desired: int(s.Desired), Kept: int(s.Kept), ReadyNow: int(s.Ready), Failed: int(s.Failed),
		Leaving: int(s.Leaving), RowErrors: int(s.RowErrorCount), DryRun: o.Spec.DryRun,
		Keeps: o.Spec.Guard.VanishedRows == "Keep", Conditions: conditionsOf(s.Conditions),
	}
	v.Grace = tenantapi.Guard(o).Grace
	if c := FindCondition(s.Conditions, "Ready"); c != nil {
		v.Ready, v.Reason, v.Message, v.Since = string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time
	}
	v.Means = meaning.OfTenant(v.Reason)
	if r := s.LastRead; r != nil {
		v.LastRead, v.Rows, v.Active, v.Mark = r.Time.Time, int(r.Rows), int(r.Active), r.HighWaterMark
	}
	for _, e := range s.RowErrors {
		one := RowError{UID: e.UID, Reason: e.Reason, Message: e.Message}
		if e.NextAttempt != nil {
			one.Next = e.NextAttempt.Time
		}
		v.FirstErrors = append(v.FirstErrors, one)
	}
	v.Warnings = int(s.RowWarningCount)
	for _, w := range s.RowWarnings {
		v.FirstWarned = append(v.FirstWarned, RowWarning{w.UID, w.Message})
	}
	if b := s.Blocked; b != nil {
		v.Blocked = &BlockedSet{b.Reason, b.Message, b.Since.Time, int(b.Count), b.Tenants, b.Token,
			b.Token != "" && o.Annotations[tenantsv1.AnnotationAllowDeletions] == b.Token}
	}
	if c := s.DryRun; c != nil {
		v.WouldChange = &WouldChange{int(c.Create), int(c.Update), int(c.Delete), c.Tenants}
	}
	for _, d := range s.Departed {
		v.Departed = append(v.Departed, Departed{d.UID, d.Time.Time, int(d.Count)})
	}
	return v
}

// sourceText says what is read, and where.
func sourceText(s *tenantsv1.Source) string {
	what := func(sel tenantsv1.Selection) string {
		if sel.Query != "" {
			return "a query"
		}
		return "table " + sel.Table
	}
	switch {
	case s.Type == tenantapi.SourceInventory && s.Inventory != nil:
		return fmt.Sprintf("inventory %s of %s %s", cmp.Or(s.Inventory.Path, tenantapi.DefaultInventoryPath), s.Inventory.SourceRef.Kind, s.Inventory.SourceRef.Name)
	case s.SQLite != nil:
		return fmt.Sprintf("sqlite %s, %s", s.SQLite.Path, what(s.SQLite.Selection))
	case s.PostgreSQL != nil:
		p := s.PostgreSQL
		return fmt.Sprintf("postgresql %s:%d/%s, %s", p.Host, p.Port, p.Database, what(p.Selection))
	case s.MySQL != nil:
		return fmt.Sprintf("mysql %s:%d/%s, %s", s.MySQL.Host, s.MySQL.Port, s.MySQL.Database, what(s.MySQL.Selection))
	default:
		return s.Type
	}
}

package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Registry is what is known of the rows of a database and of what follows.
type Registry struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Source    string    `json:"source"` // in words; no password is in it
	Interval  string    `json:"syncInterval"`
	Created   time.Time `json:"created"`
	Suspended bool      `json:"suspended,omitempty"`

	Ready   string    `json:"ready"` // True, False or Unknown
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Means   Situation `json:"means"`

	LastRead time.Time `json:"lastRead,omitzero"` // the last complete one that found something else than the one before
	Rows     int       `json:"rows"`
	Active   int       `json:"active"`
	Mark     string    `json:"highWaterMark,omitempty"`

	Templates   int           `json:"templates"`
	Desired     int           `json:"desired"`
	ReadyNow    int           `json:"readyTenants"`
	Failed      int           `json:"failedTenants"`
	Leaving     int           `json:"leaving,omitempty"`
	RowErrors   int           `json:"rowErrors,omitempty"`
	FirstErrors []RowError    `json:"firstRowErrors,omitempty"`
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

// BlockedSet are deletions that a guard has stopped. Token stands for exactly
// this set.
type BlockedSet struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Count   int       `json:"count"`
	Tenants []string  `json:"tenants,omitempty"` // the first of them
	Token   string    `json:"token,omitempty"`
	Allowed bool      `json:"allowed,omitempty"` // somebody let it pass; it has not been acted on yet
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
func (r Registry) Key() Key { return Key{r.Namespace, r.Name} }

// Registry returns what is known of a registry. The rows themselves are seen by
// the controller alone: a person needs no credential of the database for this.
func (t *Tenants) Registry(ctx context.Context, key Key) (Registry, error) {
	o, err := t.registry(ctx, key)
	if err != nil {
		return Registry{}, err
	}
	return registryView(o), nil
}

func registryView(o *tenantsv1.TenantRegistry) Registry {
	s := &o.Status
	v := Registry{
		Namespace: o.Namespace, Name: o.Name, Source: sourceText(&o.Spec.Source), Interval: o.Spec.Source.SyncInterval,
		Created: o.CreationTimestamp.Time, Suspended: o.Spec.Suspend, Ready: string(metav1.ConditionUnknown),
		Templates: int(s.ReferencingTemplates), Desired: int(s.Desired), ReadyNow: int(s.Ready), Failed: int(s.Failed),
		Leaving: int(s.Leaving), RowErrors: int(s.RowErrorCount), DryRun: o.Spec.DryRun,
		Keeps: o.Spec.Guard.VanishedRows == "Keep", Conditions: conditionsOf(s.Conditions),
	}
	if g := o.Spec.Guard.GracePeriod; g != nil {
		v.Grace = g.Duration
	}
	if c := condition(s.Conditions, "Ready"); c != nil {
		v.Ready, v.Reason, v.Message, v.Since = string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time
	}
	v.Means = TenantSituation(v.Reason)
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

// editRegistry changes the object of a registry upon the version that change was
// shown, like Stacks.edit.
func (t *Tenants) editRegistry(ctx context.Context, key Key, change func(*tenantsv1.TenantRegistry) error) error {
	return editTenants(ctx, t, func() (*tenantsv1.TenantRegistry, error) { return t.registry(ctx, key) }, "registry "+key.String(), change)
}

// editTenants makes a change of an object of one of the kinds of tenants, anew if
// somebody else was faster.
func editTenants[T client.Object](ctx context.Context, t *Tenants, read func() (T, error), what string, change func(T) error) error {
	var err error
	for range edits {
		var o T
		if o, err = read(); err != nil {
			return err
		}
		before, ok := o.DeepCopyObject().(T)
		if !ok {
			return errors.New("a copy of another kind") // never: DeepCopyObject returns its own type
		}
		if err := change(o); err != nil {
			return err
		}
		err = tenantsFault(t.kube.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager)), what)
		if fault.Of(err) != fault.Conflict {
			return err
		}
	}
	return err
}

func note(o client.Object, name, value string) {
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[name] = value
	o.SetAnnotations(a)
}

// ReadNow asks the controller to read the rows, and returns the request.
func (t *Tenants) ReadNow(ctx context.Context, key Key) (request string, err error) {
	request = t.now().UTC().Format(time.RFC3339Nano)
	return request, t.editRegistry(ctx, key, func(o *tenantsv1.TenantRegistry) error {
		if o.Spec.Suspend {
			return fault.New(fault.Invalid, ReasonRegistryIdle, fmt.Errorf("the registry %s is suspended", key))
		}
		note(o, tenantsv1.AnnotationSyncNow, request)
		return nil
	})
}

// WasRead waits until a request of ReadNow was acted upon, and returns what is
// known of the registry then.
func (t *Tenants) WasRead(ctx context.Context, key Key, request string) (Registry, error) {
	why := ""
	late := func() error {
		return errors.Join(ctx.Err(), fault.New(fault.Later, ReasonNotRead, fmt.Errorf("the rows of %s have not been read yet%s", key, why)))
	}
	for ctx.Err() == nil {
		o, err := t.registry(ctx, key)
		if err != nil {
			if ctx.Err() != nil {
				return Registry{}, late()
			}
			return Registry{}, err
		}
		if covers(o.Status.LastHandledSync, request) {
			return registryView(o), nil
		}
		if why = ""; meta.IsStatusConditionFalse(o.Status.Conditions, "Ready") {
			why = ": " + condition(o.Status.Conditions, "Ready").Message
		}
		if err := t.changed(ctx, o); err != nil && ctx.Err() == nil {
			return Registry{}, err
		}
	}
	return Registry{}, late()
}

// changed waits for the next change of a registry.
func (t *Tenants) changed(ctx context.Context, o *tenantsv1.TenantRegistry) error {
	w, err := t.kube.Watch(ctx, &tenantsv1.TenantRegistryList{}, client.InNamespace(o.Namespace), client.MatchingFields{"metadata.name": o.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: o.ResourceVersion}})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return tenantsFault(err, "registry "+o.Name)
	}
	defer w.Stop()
	event := <-w.ResultChan() // a channel that is closed says to look again
	if event.Type != watch.Error {
		return nil
	}
	if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return tenantsFault(err, "registry "+o.Name)
	}
	return nil
}

// Allow lets exactly the deletions pass that token stands for. If others are
// blocked by now it is a Conflict, and nothing is allowed.
func (t *Tenants) Allow(ctx context.Context, key Key, token string) error {
	return t.editRegistry(ctx, key, func(o *tenantsv1.TenantRegistry) error {
		switch b := o.Status.Blocked; {
		case b == nil || b.Token == "":
			return fault.New(fault.Conflict, ReasonNotBlocked, fmt.Errorf("no deletions of %s are blocked", key))
		case b.Token != token:
			return fault.New(fault.Conflict, ReasonTokenChanged, fmt.Errorf("other deletions of %s are blocked by now than those that were shown", key))
		}
		note(o, tenantsv1.AnnotationAllowDeletions, token)
		return nil
	})
}

// SuspendRegistry leaves rows and tenants as they are until ResumeRegistry.
func (t *Tenants) SuspendRegistry(ctx context.Context, key Key) error {
	return t.setIdle(ctx, key, true)
}

// ResumeRegistry ends a suspension.
func (t *Tenants) ResumeRegistry(ctx context.Context, key Key) error {
	return t.setIdle(ctx, key, false)
}

func (t *Tenants) setIdle(ctx context.Context, key Key, to bool) error {
	return t.editRegistry(ctx, key, func(o *tenantsv1.TenantRegistry) error {
		o.Spec.Suspend = to
		return nil
	})
}

package tenants

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Conditions of a registry, and their reasons besides those of package tenant.
const (
	conditionReady     = "Ready"
	conditionGuarded   = "Guarded"   // True: a guard, or protection, blocks deletions
	conditionRowsValid = "RowsValid" // False: some rows have errors

	reasonConnected    = "DatabaseConnected"
	reasonNotConnected = "DatabaseConnectionFailed"
	reasonRead         = "InventoryRead"
	reasonUnreadable   = "InventoryUnreadable"
	reasonSuspended    = "Suspended"
	reasonLeaving      = "Deleting"
	reasonNothing      = "NothingBlocked"
	reasonProtected    = "DeletionProtected"
	reasonOlderRead    = "OlderRead"
	reasonKept         = "VanishedRowsKept"
	reasonRowsValid    = "RowsValid"
	reasonRowErrors    = "RowErrors"

	reasonReconcileFailed = "ReconcileFailed" // of each kind: its passes end early
)

// shown is how many items a status lists.
const shown = 20

// registryStatus reports on registries: status, conditions and events.
type registryStatus struct{ Options }

// report writes the status, if anything in it is new, and events.
func (c *registryStatus) report(ctx context.Context, l *registryPass) error {
	s := &l.obj.Status
	if !l.waiting {
		l.observed()
	}
	s.ReferencingTemplates = int32(len(l.specs))
	s.Ready, s.Failed = int32(l.step.Ready), int32(l.step.Failed)
	if l.memory.read.OK && l.memory.err == nil {
		s.LastHandledSync = l.memory.sync // also of a read whose report lost against another writer
	}
	if l.waiting {
		c.setWaiting(l)
	} else {
		c.setReady(l)
	}
	if l.known.Read.OK {
		if l.step.Ignored == "" {
			s.Desired, s.Kept = int32(l.step.Desired), int32(l.step.Staying)
		}
		c.setRead(l)
		c.setRows(l)
	}
	kept := l.keepsBlocked()
	if l.known.Read.OK || l.step.Blocked != nil && !kept {
		c.setGuarded(l, kept)
	}
	if l.concludes() {
		l.memory.byRows, l.memory.knows = l.tokenOfRows(), true
	}
	switch {
	case l.obj.Spec.DryRun && l.waiting: // what it would do is known when the read ends
	case l.obj.Spec.DryRun:
		s.DryRun = wouldChange(l.step)
	default:
		s.DryRun = nil
		if l.known.Read.OK && l.step.Ignored == "" {
			s.Leaving = int32(l.step.Leaving)
			s.Departed = departedOf(l.step.Departed)
		}
	}
	if err := c.write(ctx, l.before, l.obj); err != nil {
		return err
	}
	l.said.tell(c.Events)
	return nil
}

// concludes reports whether the step knows what the rows ask for.
func (l *registryPass) concludes() bool { return l.known.Read.OK && l.step.Ignored == "" }

// keepsBlocked reports whether the status keeps the set of blocked deletions that it shows.
// A step without rows knows those of deleted templates only. To show them would void the
// permission that a user gives for the set with rows: the read that has to confirm it is
// slow, or fails. A set that was never of rows can be allowed without any. Before its first
// complete read a process does not know which of the two an earlier one has shown.
func (l *registryPass) keepsBlocked() bool {
	token := tokenOf(l.before.Status.Blocked)
	return token != "" && !l.concludes() && (l.waiting || !l.memory.knows || token == l.memory.byRows)
}

// tokenOfRows is the token of the blocked deletions, empty if all are of deleted templates.
func (l *registryPass) tokenOfRows() string {
	if l.step.Blocked == nil {
		return ""
	}
	for _, name := range l.step.Blocked.Tenants {
		if t := l.specs[l.tenants[name].Spec.TemplateRef]; t == nil || t.DeletionTimestamp == nil {
			return l.step.Blocked.Token
		}
	}
	return ""
}

func tokenOf(b *tenantsv1.Blocked) string {
	if b == nil {
		return ""
	}
	return b.Token
}

// observed notes the generation that the status is about. The marks of reads of another
// one do not count any more, also if the first read of this one fails.
func (l *registryPass) observed() {
	s := &l.obj.Status
	if s.ObservedGeneration != l.obj.Generation && s.LastRead != nil {
		last := *s.LastRead
		last.HighWaterMark = ""
		s.LastRead = &last
	}
	s.ObservedGeneration = l.obj.Generation
}

// write patches the status, if it has changed.
func (c *registryStatus) write(ctx context.Context, before, obj *tenantsv1.TenantRegistry) error {
	if changed, err := kube.Differ(before, obj); err != nil || !changed {
		return err
	}
	if err := c.record(ctx, obj, tenantsv1.RegistryKind, registryEntries(before, obj)...); err != nil {
		return err
	}
	if err := c.patchStatus(ctx, obj, before); err != nil {
		return fmt.Errorf("writing the status of the registry %s: %w", obj.Name, err)
	}
	return nil
}

func (c *registryStatus) condition(obj *tenantsv1.TenantRegistry, kind string, status bool, reason, message string) {
	setCondition(&obj.Status.Conditions, obj.Generation, c.Now(), kind, status, reason, message)
}

// setCondition sets one condition. Its time changes with its status.
func setCondition(all *[]metav1.Condition, generation int64, now time.Time, kind string, status bool, reason, message string) {
	s := metav1.ConditionFalse
	if status {
		s = metav1.ConditionTrue
	}
	meta.SetStatusCondition(all, metav1.Condition{
		Type: kind, Status: s, Reason: reason, Message: shorten(message), ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// setReady reports whether the rows can be read. Package rows has shortened and
// redacted the message of the database.
func (c *registryStatus) setReady(l *registryPass) {
	before := meta.FindStatusCondition(l.before.Status.Conditions, conditionReady)
	good, bad, failed, found := reasonConnected, reasonNotConnected, "DatabaseQueryFailed", "the query returned"
	if l.obj.Spec.Source.Type == tenantapi.SourceInventory {
		good, bad, failed, found = reasonRead, reasonUnreadable, reasonUnreadable, "the inventory has"
	}
	if err := l.memory.err; err != nil {
		c.condition(l.obj, conditionReady, false, bad, err.Error()+". Tenants stay as they are until the rows can be read")
		if before == nil || before.Reason != bad {
			l.said.add(l.obj, corev1.EventTypeWarning, failed, err.Error())
		}
		return
	}
	message := fmt.Sprintf("%s %s, %d of them active", found, plural.Count(l.memory.read.Total, "row"), active(l.memory.read.Rows))
	if n := l.memory.read.Total - len(l.memory.read.Rows); n > 0 {
		message += fmt.Sprintf(" and %d invalid", n)
	}
	c.condition(l.obj, conditionReady, true, good, message)
	if before != nil && before.Reason == bad {
		l.said.add(l.obj, corev1.EventTypeNormal, good, "The rows can be read again")
	}
}

// setWaiting reports that the first read goes on. During later ones the condition is that of
// the last.
func (c *registryStatus) setWaiting(l *registryPass) {
	if r := reasonOf(l.before.Status.Conditions, conditionReady); r != "" && r != reasonSuspended {
		return
	}
	bad := reasonNotConnected
	if l.obj.Spec.Source.Type == tenantapi.SourceInventory {
		bad = reasonUnreadable
	}
	why := "the first read of the rows waits for its turn: reads of other registries of this namespace go on"
	if r := l.memory.reading; r != nil {
		why = "the first read of the rows goes on since " + r.began.UTC().Format(time.RFC3339)
	}
	c.condition(l.obj, conditionReady, false, bad, why+". Tenants stay as they are until the rows can be read")
}

func active(all []tenant.Row) (n int) {
	for _, r := range all {
		if r.Active {
			n++
		}
	}
	return n
}

// setRead reports on the last complete read. A new time alone is not written.
func (c *registryStatus) setRead(l *registryPass) {
	if l.step.Ignored != "" {
		return
	}
	r := l.memory.read
	now := tenantsv1.Read{Time: metav1.NewTime(r.Time.UTC()), Rows: int32(r.Total), Active: int32(active(r.Rows)), HighWaterMark: r.Mark}
	if now.HighWaterMark == "" {
		now.HighWaterMark = r.LastMark // an empty table must not make older data acceptable
	}
	if last := l.obj.Status.LastRead; last != nil && last.Rows == now.Rows && last.Active == now.Active && last.HighWaterMark == now.HighWaterMark {
		return
	}
	l.obj.Status.LastRead = &now
}

// setRows reports the rows with errors.
func (c *registryStatus) setRows(l *registryPass) {
	s := &l.obj.Status
	if l.step.Ignored != "" {
		return
	}
	c.setWarnings(l)
	all := slices.Concat(l.step.RowErrors, l.failures)
	s.RowErrors, s.RowErrorCount = nil, int32(len(all))
	for _, e := range all[:min(len(all), shown)] {
		s.RowErrors = append(s.RowErrors, tenantsv1.RowError{UID: shorten(e.UID), Reason: e.Reason, Message: shorten(e.Message), NextAttempt: moment(e.Next)})
	}
	if len(all) == 0 {
		c.condition(l.obj, conditionRowsValid, true, reasonRowsValid, "all rows are valid")
		return
	}
	message := s.RowErrors[0].Message
	if len(all) > 1 {
		message += fmt.Sprintf("; and %d more in status.rowErrors", len(all)-1)
	}
	c.condition(l.obj, conditionRowsValid, false, reasonRowErrors, message)
	same := func(a, b tenantsv1.RowError) bool {
		return a.UID == b.UID && a.Reason == b.Reason && a.Message == b.Message
	}
	if !slices.EqualFunc(s.RowErrors, l.before.Status.RowErrors, same) {
		l.said.add(l.obj, corev1.EventTypeWarning, reasonRowErrors, message)
	}
}

// setWarnings reports what users should know of rows that are valid.
func (c *registryStatus) setWarnings(l *registryPass) {
	s := &l.obj.Status
	notes := l.memory.read.Notes
	s.RowWarnings, s.RowWarningCount = nil, int32(len(notes))
	for _, n := range notes[:min(len(notes), shown)] {
		s.RowWarnings = append(s.RowWarnings, tenantsv1.RowWarning{UID: shorten(n.UID), Message: shorten(n.Text)})
	}
	if len(notes) > 0 && !slices.Equal(s.RowWarnings, l.before.Status.RowWarnings) {
		first := s.RowWarnings[0]
		message := fmt.Sprintf("%s: %s", first.UID, first.Message)
		if len(notes) > 1 {
			message += fmt.Sprintf("; and %d more in status.rowWarnings", len(notes)-1)
		}
		l.said.add(l.obj, corev1.EventTypeWarning, "RowWarnings", message)
	}
}

// setGuarded reports the blocked deletions, and how to allow them. Kept says that those that
// the status shows stay.
func (c *registryStatus) setGuarded(l *registryPass, kept bool) {
	s := &l.obj.Status
	reason, message := reasonNothing, "no deletion is blocked"
	held := l.step.Blocked
	switch {
	case held != nil && !kept:
		reason, message = held.Reason, held.Message
	case l.step.Ignored != "":
		reason, message = reasonOlderRead, l.step.Ignored+". Terrier ignores this read"
	case len(l.step.Protected) > 0:
		held = &tenant.Blocked{Reason: reasonProtected, Tenants: l.step.Protected, Message: "deletion protection, by an annotation or by the template, keeps " + tenant.Few(l.step.Protected, 5)}
		reason, message = held.Reason, held.Message
	case len(l.step.Kept) > 0:
		reason, message = reasonKept, "rows are missing, and guard.vanishedRows keeps their tenants: "+tenant.Few(l.step.Kept, 5)
	}
	c.condition(l.obj, conditionGuarded, reason != reasonNothing, reason, message)
	if kept {
		return
	}
	if held == nil {
		s.Blocked = nil
		return
	}
	was := s.Blocked
	same := was != nil && was.Reason == held.Reason && was.Token == held.Token && int(was.Count) == len(held.Tenants)
	since := metav1.NewTime(held.Since)
	switch {
	case !held.Since.IsZero(): // the token is of this time
	case same:
		since = was.Since
	default:
		since = metav1.NewTime(c.Now().UTC())
	}
	s.Blocked = &tenantsv1.Blocked{
		Reason: held.Reason, Message: held.Message, Since: since,
		Count: int32(len(held.Tenants)), Tenants: slices.Clone(held.Tenants[:min(len(held.Tenants), shown)]), Token: held.Token,
	}
	if !same {
		l.said.add(l.obj, corev1.EventTypeWarning, "DeletionsBlocked", message)
	}
}

// wouldChange counts a tenant that would wait for its deletion as deleted: a dry run
// marks none, so that no grace period ends.
func wouldChange(s tenant.Step) *tenantsv1.Changes {
	var leave, update []tenant.Change
	removed := map[string]bool{}
	for _, r := range s.Remove {
		removed[r.Name] = true
	}
	for _, n := range s.Change {
		switch {
		case removed[n.Name]:
		case n.Leaving != nil:
			leave = append(leave, n)
		default:
			update = append(update, n)
		}
	}
	out := &tenantsv1.Changes{Create: int32(len(s.Create)), Update: int32(len(update)), Delete: int32(len(s.Remove) + len(leave))}
	add := func(sign, name string) {
		if len(out.Tenants) < shown {
			out.Tenants = append(out.Tenants, sign+name)
		}
	}
	for _, r := range s.Remove {
		add("-", r.Name)
	}
	for _, n := range leave {
		add("-", n.Name)
	}
	for _, n := range s.Create {
		add("+", n.Name)
	}
	for _, n := range update {
		add("~", n.Name)
	}
	return out
}

func departedOf(all []tenant.Departed) []tenantsv1.Departure {
	var out []tenantsv1.Departure
	for _, d := range all {
		out = append(out, tenantsv1.Departure{UID: d.UID, Time: metav1.NewTime(d.Time.UTC()), Count: int32(d.Count)})
	}
	return out
}

func (c *registryStatus) suspended(ctx context.Context, l *registryPass) error {
	l.observed()
	c.condition(l.obj, conditionReady, false, reasonSuspended, "spec.suspend is set: Terrier reads no rows, and tenants stay as they are")
	return c.write(ctx, l.before, l.obj)
}

// deleting reports what the deletion of a registry waits for.
func (c *registryStatus) deleting(ctx context.Context, obj *tenantsv1.TenantRegistry, left int, protected []string, stay []tenant.RowError) error {
	before := obj.DeepCopy()
	message := fmt.Sprintf("the registry is being deleted; %d of its tenants are left", left)
	if len(stay) > 0 {
		message += "; " + stay[0].Message
	}
	if len(protected) > 0 {
		message += "; deletion protection, by an annotation or by the template, keeps " + tenant.Few(protected, 5)
		c.condition(obj, conditionGuarded, true, reasonProtected, message)
	}
	c.condition(obj, conditionReady, false, reasonLeaving, message)
	return c.write(ctx, before, obj)
}

package dialect

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Never is an interval that does not end in practice.
const Never = 100 * 365 * 24 * time.Hour

// Stored reads the status that earlier reconciles wrote. It has found none if the object
// has no such part: then another controller may have reconciled it.
func Stored(t *v1alpha2.TerrierStatus) (m stack.Status, found bool, err error) {
	if t == nil || t.Memory == nil {
		return stack.Status{}, false, nil
	}
	if err := json.Unmarshal(t.Memory.Raw, &m); err != nil {
		return stack.Status{}, true, fault.New(fault.Broken, "", fmt.Errorf("reading status.terrier.memory: %w", err))
	}
	return m, true, nil
}

// Lasting is the part of a status without what is only progress.
func Lasting(t *v1alpha2.TerrierStatus) (*v1alpha2.TerrierStatus, error) {
	if t == nil {
		return nil, nil
	}
	m, _, err := Stored(t)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(m) // the server sorts its keys
	out := t.DeepCopy()
	out.Phase, out.Rule, out.WaitingFor, out.Since, out.Run = "", "", "", nil, nil
	out.Isolation, out.Environment, out.Memory = "", nil, &apiextensionsv1.JSON{Raw: raw}
	return out, err
}

// Terrier is the part of the status of every kind that upstream does not have, after it
// was old. What the summary is silent about stays.
func Terrier(old *v1alpha2.TerrierStatus, s Summary) *v1alpha2.TerrierStatus {
	raw, err := json.Marshal(stack.Shown(s.Status))
	if err != nil {
		panic("dialect: encoding the status: " + err.Error()) // a plain struct always encodes
	}
	t := &v1alpha2.TerrierStatus{
		Phase:       string(s.Decision.Reason),
		Rule:        s.Decision.Rule,
		Isolation:   s.Isolation,
		Environment: s.Environment,
		Memory:      &apiextensionsv1.JSON{Raw: raw},
		NextAttempt: At(s.Next),
	}
	if s.Every > 0 && s.Every < Never {
		t.RecheckEvery = &metav1.Duration{Duration: s.Every}
	}
	if !s.Decision.Reason.Settled() {
		t.WaitingFor = cut(s.Decision.Message)
	}
	t.Since = At(s.Now)
	if old != nil {
		keepOld(t, *old, s)
	}
	if r := s.Run; r != nil && !r.Done && r.Kind != stack.CheckRun {
		t.Run = &v1alpha2.RunStatus{ID: r.ID, Kind: string(r.Kind), Phase: r.Step, StartedAt: At(r.Since), Deadline: At(r.Until)}
	}
	return t
}

// keepOld keeps what did not change, and what this pass did not observe.
func keepOld(t *v1alpha2.TerrierStatus, old v1alpha2.TerrierStatus, s Summary) {
	t.Writes, t.Inventory = old.Writes, old.Inventory
	if old.Phase == t.Phase && old.Since != nil {
		t.Since = old.Since
	}
	if old.Phase == t.Phase && old.WaitingFor == t.WaitingFor && old.Rule != t.Rule && slices.Contains(stack.Rules(), old.Rule) {
		t.Rule = old.Rule // the rule that led here, if it still has that name; the rule that keeps it here is not worth a write
	}
	if t.Isolation == "" {
		t.Isolation = old.Isolation
	}
	if s.Environment == nil {
		t.Environment = old.Environment
	}
	if s.RunUnread {
		t.Run = old.Run
	}
}

// Terrier shows the part of a status that upstream does not have, nil if it has none.
func (v *View) Terrier(t *v1alpha2.TerrierStatus) {
	if t == nil {
		return
	}
	v.Phase, v.Rule, v.WaitingFor = string(stack.ParseReason(t.Phase)), t.Rule, t.WaitingFor
	v.Since, v.Next = timeOf(t.Since), timeOf(t.NextAttempt)
	if t.RecheckEvery != nil {
		v.Every = t.RecheckEvery.Duration
	}
	v.Isolation, v.Environment = t.Isolation, t.Environment
	if r := t.Run; r != nil {
		v.Run = &Running{ID: r.ID, Kind: r.Kind, Phase: r.Phase, Started: timeOf(r.StartedAt), Until: timeOf(r.Deadline)}
	}
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// At is a time as the API keeps it: whole seconds, nil for none.
func At(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// Later is the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

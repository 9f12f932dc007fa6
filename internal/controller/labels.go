package controller

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Labels say the status of a stack, for selectors:
//
//	kubectl get terraforms.infra.contrib.fluxcd.io -A -l terrier.dev/pending-plan=true
//
// Each is there, as "true", only while it is so. They follow from the status, and
// nothing follows from them: a label that is removed or forged changes nothing but
// what selectors find, and not for long.
const (
	PendingPlanLabel = "terrier.dev/pending-plan" // a plan waits for an approval, and was not rejected
	DriftedLabel     = "terrier.dev/drifted"      // resources are not as they were applied
	FailingLabel     = "terrier.dev/failing"      // the last attempt failed, or a person must do something
)

var statusLabelNames = [...]string{PendingPlanLabel, DriftedLabel, FailingLabel}

// labelManager owns the labels, so that managedFields tells them from other writes
// of this controller.
const labelManager = kube.FieldManager + "-labels"

// labelPause is how long labels that something else changed stay as they are, if
// this controller has just written them: two controllers that disagree must not
// keep each other busy.
const labelPause = time.Minute

// statusLabels is the value of each label in statusLabelNames, empty for a label
// that is not there.
type statusLabels [len(statusLabelNames)]string

// statusLabelsOf are the labels that a stack has to have. What a run is about to
// remediate gets no label: a stack that is applied automatically would be written
// twice for each of its plans. While the stack waits for its turn, its drift has
// its label, but its plan, which waits for no approval, has none.
func statusLabelsOf(p *pass) (l statusLabels) {
	memory := p.o.Status
	settling := p.o.Run != nil && p.o.Run.Kind.Writes()
	approved := settling
	switch p.decision.Action.(type) {
	case stack.Apply, stack.Destroy, stack.Review:
		approved, settling = true, settling || p.o.Queued == ""
	}
	for i, is := range [...]bool{
		memory.Pending != nil && !approved && p.decision.Reason != stack.PlanRejected,
		memory.Drift != nil && !settling,
		memory.Failures > 0 || p.decision.Ready == stack.Stalled,
	} {
		if is {
			l[i] = "true"
		}
	}
	return l
}

// statusLabelsIn are the labels that an object has. One without a value is there,
// too.
func statusLabelsIn(labels map[string]string) (l statusLabels) {
	for i, name := range statusLabelNames {
		if value, ok := labels[name]; ok && value == "" {
			l[i] = "(empty)"
		} else {
			l[i] = value
		}
	}
	return l
}

// isStatusLabel reports whether a label shows the status of its stack. Such a label
// is no input: a plan must not cause the next one.
func isStatusLabel(name string) bool {
	return slices.Contains(statusLabelNames[:], name)
}

// writeLabels makes the labels of an object say the status of its stack. A stack
// goes on without its labels: a policy that has nothing to do with Terrier may
// refuse them.
func (cm *committer) writeLabels(ctx context.Context, p *pass) error {
	has, want := statusLabelsIn(p.obj.GetLabels()), statusLabelsOf(p)
	if has == want {
		p.entry.noteLabels(want, time.Time{})
		return nil
	}
	if later := p.entry.labelPause(want, p.o.Now); later > 0 {
		p.recheckIn(later)
		return nil
	}
	p.entry.noteLabels(want, p.o.Now) // before the write, whose event must find it
	labels := map[string]any{}
	for i, name := range statusLabelNames {
		switch {
		case has[i] == want[i]:
		case want[i] == "":
			labels[name] = nil
		default:
			labels[name] = want[i]
		}
	}
	// The UID is a precondition: another stack of this name has labels of its own.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.id, "labels": labels}})
	if err == nil {
		written := p.obj.DeepCopyObject().(client.Object)
		if err = cm.live.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(labelManager)); err == nil {
			cm.index.wrote(p.entry.objectRef, written)
		}
	}
	if err = client.IgnoreNotFound(err); err != nil {
		cm.log.Warn("status labels not written", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", err)
		p.recheckIn(labelPause)
	}
	return nil
}

// writtenLabels are the labels of a stack as they were left last.
type writtenLabels struct {
	statusLabels
	at time.Time // of the last write
}

// noteLabels remembers that the stack has labels. With a time, they were written
// then.
func (e *entry) noteLabels(has statusLabels, at time.Time) {
	if last := e.statusLabels.Load(); at.IsZero() && last != nil {
		at = last.at
	}
	e.statusLabels.Store(&writtenLabels{has, at})
}

// labelPause is how long to wait before the same labels are written once more.
func (e *entry) labelPause(want statusLabels, now time.Time) time.Duration {
	last := e.statusLabels.Load()
	if last == nil || last.statusLabels != want || last.at.IsZero() {
		return 0
	}
	return max(0, labelPause-now.Sub(last.at))
}

// hasLabels reports whether exactly these labels are what the stack is to have.
func (e *entry) hasLabels(is statusLabels) bool {
	if e == nil {
		return false
	}
	last := e.statusLabels.Load()
	return last != nil && last.statusLabels == is
}

// labelsChanged wakes a stack whose labels changed: one of its own, or a status
// label that is not as this controller left it.
func (wt *watches) labelsChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()
			if has := statusLabelsIn(is); has != statusLabelsIn(was) && !wt.index.find(string(e.ObjectNew.GetUID())).hasLabels(has) {
				return true
			}
			return !maps.Equal(ownLabels(was), ownLabels(is))
		},
	}
}

// ownLabels are the labels that are not ours.
func ownLabels(labels map[string]string) map[string]string {
	own := maps.Clone(labels)
	maps.DeleteFunc(own, func(name, _ string) bool { return isStatusLabel(name) })
	return own
}

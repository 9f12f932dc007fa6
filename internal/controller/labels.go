package controller

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Labels say how a stack stands to those who look for stacks by selectors:
//
//	kubectl get terraforms -A -l terrier.dev/pending-plan=true
//
// Each is there, as "true", only while it is so. They follow from the status and
// nothing follows from them: whoever removes or forges one changes nothing but
// what is found, and that not for long.
const (
	PendingPlanLabel = "terrier.dev/pending-plan" // a plan waits for an approval
	DriftedLabel     = "terrier.dev/drifted"      // the world is not what was applied
	FailingLabel     = "terrier.dev/failing"      // the last attempt failed, or somebody must do something
)

var statusLabels = [...]string{PendingPlanLabel, DriftedLabel, FailingLabel}

// labelManager owns the labels, so that managedFields tells them from what we
// write otherwise.
const labelManager = kube.FieldManager + "-labels"

// labelPause is how long labels that somebody else changed stay as they are, if
// we have just written them: two controllers that disagree must not keep each
// other busy.
const labelPause = time.Minute

// marks is the value of each of the statusLabels, empty for those that are not
// there.
type marks [len(statusLabels)]string

// marksOf are the labels that a stack has to have. What a run is about to put
// right is not marked: a stack that is applied by itself would be written twice
// for each of its plans. While it waits for its turn, its drift is marked, but
// not its plan, which waits for nobody's approval.
func marksOf(p *pass, d stack.Decision) (m marks) {
	memory := p.o.Status
	settling := p.o.Run != nil && p.o.Run.Kind.Writes()
	approved := settling
	switch d.Action.(type) {
	case stack.Apply, stack.Destroy, stack.Review:
		approved, settling = true, settling || p.wait == ""
	}
	for i, is := range [...]bool{
		memory.Pending != nil && !approved,
		memory.Drift != nil && !settling,
		memory.Failures > 0 || d.Ready == stack.Stalled,
	} {
		if is {
			m[i] = "true"
		}
	}
	return m
}

// marksIn are the labels that an object has. One without a value is there, too.
func marksIn(labels map[string]string) (m marks) {
	for i, name := range statusLabels {
		if value, ok := labels[name]; ok && value == "" {
			m[i] = "(empty)"
		} else {
			m[i] = value
		}
	}
	return m
}

// isStatusLabel reports whether a label says how its stack stands. Such a label
// is no input: a stack must not be planned anew because it was planned.
func isStatusLabel(name string) bool {
	return slices.Contains(statusLabels[:], name)
}

// mark makes the labels of an object say how its stack stands, and returns when
// to do so instead, zero if it is done. A stack goes on without them: labels may
// be refused by a policy that has nothing to do with us.
func (c *Stacks) mark(ctx context.Context, p *pass, d stack.Decision) (later time.Duration) {
	has, want := marksIn(p.obj.GetLabels()), marksOf(p, d)
	if has == want {
		c.marks.note(p.id, want, time.Time{})
		return 0
	}
	if later := c.marks.pause(p.id, want, p.o.Now); later > 0 {
		return later
	}
	c.marks.note(p.id, want, p.o.Now) // first: the event of our own write must find it
	labels := map[string]any{}
	for i, name := range statusLabels {
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
		if err = c.Live.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(labelManager)); err == nil {
			c.writes.wrote(written)
		}
	}
	if err = client.IgnoreNotFound(err); err != nil {
		c.Log.Warn("status labels not written", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", err)
		return labelPause
	}
	return 0
}

// marked remembers what was written last, by the UIDs of stacks.
type marked struct {
	mu    sync.Mutex
	stood map[string]mark
}

type mark struct {
	marks
	at time.Time // of the last write
}

// note remembers that a stack has labels. With a time, they were written then.
func (m *marked) note(id string, has marks, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stood == nil {
		m.stood = map[string]mark{}
	}
	if at.IsZero() {
		at = m.stood[id].at
	}
	m.stood[id] = mark{has, at}
}

// pause is how long to wait before the same is written once more.
func (m *marked) pause(id string, want marks, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.stood[id]
	if !ok || last.marks != want || last.at.IsZero() {
		return 0
	}
	return max(0, labelPause-now.Sub(last.at))
}

// has reports whether exactly these labels are what a stack is to have.
func (m *marked) has(id string, is marks) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.stood[id]
	return ok && last.marks == is
}

func (m *marked) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stood, id)
}

// labelsChanged wakes a stack whose labels changed: one of its own, or a status
// label that is not as we left it.
func (c *Stacks) labelsChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()
			if marked := marksIn(is); marked != marksIn(was) && !c.marks.has(string(e.ObjectNew.GetUID()), marked) {
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

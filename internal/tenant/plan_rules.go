package tenant

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// wanted is one resource of the template, with the facts that its rules use.
type wanted struct {
	*planning
	r      Resource
	object *Object // nil if it could not be rendered
	ref    Ref
	child  Child
	first  string // the id that has the same object already

	failed  []string // dependencies that have failed
	waiting []string // those that are not ready yet
}

// depend sorts the dependencies of w by their states. A dependency that was left
// out for this tenant is ignored.
func (w *wanted) depend() {
	for _, id := range w.r.DependIDs {
		v, ok := w.verdicts[id]
		switch {
		case !ok || v.State == Ready:
		case v.State.stops():
			w.failed = append(w.failed, id)
		default:
			w.waiting = append(w.waiting, id)
		}
	}
}

// wantedRule is one rule about wanted objects.
type wantedRule struct {
	name string
	when func(*wanted) bool
	then func(*wanted) (Verdict, *Act)
}

// wantedRules are tried in order; the first that matches decides.
var wantedRules = []wantedRule{
	{
		"a resource that cannot be rendered has failed, and its object stays",
		func(w *wanted) bool { return w.object == nil },
		(*wanted).unrendered,
	},
	{
		"two resources are never one object",
		func(w *wanted) bool { return w.first != "" },
		func(w *wanted) (Verdict, *Act) {
			return Verdict{State: Failed, Reason: DuplicateObject, Message: w.ref.String() + " is also the object of " + w.first + "; give one of the two another name"}, nil
		},
	},
	{
		"an object that cannot be read is not touched",
		func(w *wanted) bool { return w.child.Unseen },
		func(w *wanted) (Verdict, *Act) {
			w.retry(w.child.Failure)
			return w.child.Failure.verdict(CannotBeRead), nil
		},
	},
	{
		"an object that is being deleted is waited for, then created again",
		func(w *wanted) bool { return w.child.Exists && w.child.Deleting },
		func(w *wanted) (Verdict, *Act) {
			return w.overdue(BeingDeleted, fmt.Sprintf("%s is being deleted%s; Terrier creates it again when it is gone", w.ref, finalizers(w.child)))
		},
	},
	{
		"an object with creationPolicy Once is never written again",
		// Only if this tenant owns it: the author of a template must not learn by
		// readyWhen the content of an object that they may not read.
		func(w *wanted) bool {
			return w.object.Creation == Once && w.child.Exists && w.child.CreatedOnce && w.child.Owned
		},
		(*wanted).readiness,
	},
	{
		"an object that is as rendered is not written",
		func(w *wanted) bool { return w.child.Exists && w.child.Current },
		(*wanted).readiness,
	},
	{
		"a resource with a failed dependency is skipped",
		func(w *wanted) bool { return len(w.failed) > 0 && !w.r.ProceedOnFailedDepends },
		func(w *wanted) (Verdict, *Act) {
			return Verdict{State: Skipped, Reason: DependencySkipped, Message: "not written because " + strings.Join(w.failed, ", ") + " failed"}, nil
		},
	},
	{
		"a resource waits for its dependencies",
		func(w *wanted) bool { return len(w.waiting) > 0 },
		func(w *wanted) (Verdict, *Act) {
			return Verdict{State: Pending, Reason: DependencyNotReady, Message: "waits for " + strings.Join(w.waiting, ", ")}, nil
		},
	},
	{
		"a failed write is retried after a pause, or when something changed",
		func(w *wanted) bool { return w.child.Failure.waits(w.Now) },
		func(w *wanted) (Verdict, *Act) {
			w.retry(w.child.Failure)
			return w.child.Failure.verdict(ApplyFailed), nil
		},
	},
	{
		"every other object is written",
		func(*wanted) bool { return true },
		func(w *wanted) (Verdict, *Act) {
			v := Verdict{State: Progressing, Reason: Applying, Message: w.ref.String() + " is about to be written"}
			return v, &Act{Write: w.object, Despite: w.failed}
		},
	},
}

// untie takes the tie off an object that must outlive its Tenant and that is not written now:
// a write would do so. An object with creationPolicy Once has the tie from before the policy
// was changed, and so has one whose write waits or fails.
func (w *wanted) untie(v Verdict) (Verdict, *Act) {
	c := w.child
	if w.object == nil || w.first != "" || c.Unseen || !c.Exists || c.Deleting || !c.Owned || !c.Tied {
		return v, nil
	}
	policy := cmp.Or(w.r.Deletion, Delete)
	if c.Deletion == Retain {
		policy = Retain
	}
	if policy != Retain && !w.Protected {
		return v, nil
	}
	if c.Failure.waits(w.Now) {
		w.retry(c.Failure)
		return c.Failure.verdict(ApplyFailed), nil
	}
	return v, &Act{Untie: &Item{ID: w.r.ID, Ref: w.ref, UID: c.UID, Deletion: policy}}
}

func (w *wanted) unrendered() (Verdict, *Act) {
	if w.Broken != nil {
		return Verdict{State: Failed, Reason: w.Broken.Reason, Message: w.Broken.Message}, nil
	}
	e, ok := w.errors[w.r.ID]
	if !ok {
		e = w.errors[""]
	}
	message := e.Message // the verdict has the id
	if e.Field != "" {
		message = e.Field + ": " + message
	}
	return Verdict{State: Failed, Reason: TemplateRenderError, Message: message}, nil
}

// verdict is the verdict on an object after a failed attempt.
func (f *Failure) verdict(fallback string) Verdict {
	switch {
	case f == nil:
		return Verdict{State: Failed, Reason: fallback, Message: "for an unknown reason"}
	case f.Conflict:
		return Verdict{State: Conflicted, Reason: ResourceConflict, Message: f.Message, Next: f.RetryAt}
	}
	return Verdict{State: Failed, Reason: cmp.Or(f.Reason, fallback), Message: f.Message, Next: f.RetryAt}
}

// readiness is the verdict on an object that is as rendered.
func (w *wanted) readiness() (Verdict, *Act) {
	if w.r.NoWait {
		return Verdict{State: Ready}, nil
	}
	readiness, message := w.child.Readiness, w.child.Message
	if w.r.ReadyWhen != "" {
		readiness, message = w.readyWhen()
	}
	if w.child.Unwatched {
		w.recheck(driftCheck)
	}
	switch readiness {
	case IsReady:
		return Verdict{State: Ready}, nil
	case IsFailed:
		return Verdict{State: Failed, Reason: ResourceFailed, Message: w.ref.String() + ": " + cmp.Or(message, "its status says that it failed")}, nil
	case IsProgressing:
	}
	if w.child.Depends {
		w.recheck(dependsCheck)
	}
	if w.child.Unwatched {
		w.recheck(unwatchedCheck)
	}
	return w.overdue(NotReady, w.ref.String()+": "+cmp.Or(message, "it is not ready yet"))
}

// readyWhen evaluates the template's own rule. A status of an older generation of
// the object counts for no rule.
func (w *wanted) readyWhen() (Readiness, string) {
	status, _ := w.child.Object["status"].(map[string]any)
	if seen, ok := status["observedGeneration"].(int64); ok && seen < w.child.Generation {
		return IsProgressing, "its status is of an older generation"
	}
	ready, err := ReadyWhen(w.r.ReadyWhen, w.child.Object)
	switch {
	case err != nil:
		return IsProgressing, err.Error()
	case !ready:
		return IsProgressing, cmp.Or(w.child.Message, "readyWhen is false")
	}
	return IsReady, ""
}

// overdue is progress within the timeout, and a failure after it, until the object
// becomes ready or is changed.
func (w *wanted) overdue(reason, message string) (Verdict, *Act) {
	before, known := w.before[past{w.r.ID, false}]
	if w.child.Wrote {
		known = false
	}
	timeout := w.r.Timeout
	late := Verdict{State: Failed, Reason: ReadinessTimeout, Message: fmt.Sprintf("not ready within %s: %s", timeout, message)}
	switch {
	case known && before.same(late):
		late.Since = before.Since
		return late, nil
	case !known || before.State != Progressing || before.Reason == Applying:
		w.recheck(timeout)
		return Verdict{State: Progressing, Reason: reason, Message: message, Since: w.Now}, nil
	}
	if left := before.Since.Add(timeout).Sub(w.Now); left > 0 {
		w.recheck(left)
		return Verdict{State: Progressing, Reason: reason, Message: message, Since: before.Since}, nil
	}
	late.Since = w.Now
	return late, nil
}

// finalizers names the finalizers of an object that is being deleted.
func finalizers(c Child) string {
	if len(c.Finalizers) == 0 {
		return ""
	}
	return ", held by " + strings.Join(c.Finalizers, ", ")
}

// dependsCheck is how often an object is read whose readiness depends on objects
// that no watch sees.
const dependsCheck = 30 * time.Second

// unwatchedCheck is how often an object of a kind that is not watched is read while it
// changes: until it is ready, or gone. driftCheck is how often it is read after.
const (
	unwatchedCheck = 5 * time.Second
	driftCheck     = 5 * time.Minute
)

// deletionCheck is how often an object that is being deleted is read, in case its
// watch misses the end.
const deletionCheck = time.Minute

package controller

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/dialect"
)

// answer is what a person answered to a plan, as metrics call it.
type answer string

const (
	answerGiven    answer = "given"
	answerStale    answer = "stale" // it names a plan that does not wait, or no longer
	answerRejected answer = "rejected"
)

// answered counts the answers of people to plans when they give them: as edits of
// objects, by any client. It wakes no stack.
func (wt *watches) answered(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if !mayAnswer(e.ObjectOld, e.ObjectNew) {
		return
	}
	if a := answerOf(wt.decoded(e.ObjectOld), wt.decoded(e.ObjectNew)); a != "" {
		wt.metrics.answers.WithLabelValues(string(a)).Inc()
	}
}

// mayAnswer keeps most updates, which are of statuses, from being decoded.
func mayAnswer(before, after client.Object) bool {
	if before.GetGeneration() != after.GetGeneration() {
		return true
	}
	was, is := before.GetAnnotations(), after.GetAnnotations()
	if len(was) != len(is) {
		return true
	}
	for k, v := range is {
		if was[k] != v {
			return true
		}
	}
	return false
}

// answerOf is the answer of an edit to the pending plan, if it has one and the stack
// waits for an approval.
func answerOf(before, after dialect.Stack) answer {
	said, p := after.Spec, after.Status.Pending
	waits := p.Is
	switch {
	case !said.AwaitsApproval(after.Status):
		return ""
	case said.Rejected != before.Spec.Rejected && waits(said.Rejected):
		return answerRejected
	case said.Confirms != "" && said.Confirms != before.Spec.Confirms && waits(said.Confirmed()):
		return answerGiven
	case said.Approved == "" || said.Approved == before.Spec.Approved:
		return ""
	case waits(said.Approved):
		return answerGiven
	default:
		return answerStale
	}
}

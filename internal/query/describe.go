package query

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Detail is all there is to know of a stack without looking into its records.
type Detail struct {
	Stack
	Conditions []Condition `json:"conditions,omitempty"`
	Failure    *Failure    `json:"failure,omitempty"`

	Prerequisites []steps.Prerequisite `json:"prerequisites,omitempty"` // what its plans wait for
	Steps         *steps.Steps         `json:"steps,omitempty"`         // after its applies; nil without any

	DependsOn []string          `json:"dependsOn,omitempty"`
	Rejected  string            `json:"rejected,omitempty"` // the plan that was rejected last
	Events    []Event           `json:"events,omitempty"`   // newest first
	Unseen    string            `json:"unseen,omitempty"`   // why events are not shown
	Means     meaning.Situation `json:"means"`
}

// Failure is the last failure, if nothing has succeeded since.
type Failure struct {
	At      time.Time     `json:"at"`
	Kind    stack.RunKind `json:"kind,omitempty"`
	Step    string        `json:"step,omitempty"`
	Message string        `json:"message,omitempty"`
}

// Event is something that happened.
type Event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count,omitempty"`
}

// eventsShown bounds how many events are shown.
const eventsShown = 50

// Describe returns all there is to know of a stack. Events that the caller may
// not see are left out, and it says so.
func (s *Stacks) Describe(ctx context.Context, key Key) (Detail, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Stack: View(o), Conditions: conditions(o.View.Conditions), Rejected: o.View.Rejected}
	d.Prerequisites, d.Steps = steps.Gates(o.Configuration.Prerequisites, o.View.Conditions), stepsOf(o)
	for _, r := range input.References(o.Legible, key.Namespace).DependsOn {
		d.DependsOn = append(d.DependsOn, keyOf(s.Kinds, o.Dialect, r).String())
	}
	if m := o.Status; m.Failures > 0 {
		d.Failure = &Failure{At: m.FailedAt, Kind: m.FailedKind, Step: m.FailedStep, Message: m.FailedWith}
	}
	d.Means = o.explained(stack.Reason(d.Phase))
	d.Events, err = events(ctx, s.Kube, key.Namespace, d.UID)
	if err != nil {
		d.Unseen = err.Error()
	}
	return d, nil
}

// events returns what happened to an object, newest first.
func events(ctx context.Context, kube client.Reader, namespace, uid string) ([]Event, error) {
	var list corev1.EventList
	if err := kube.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": uid}); err != nil {
		return nil, access.Fault(err, "events")
	}
	var out []Event
	for _, e := range list.Items {
		message, _ := plan.MaskURLs(e.Message) // any controller may have written it
		at := e.LastTimestamp.Time
		for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
			if at.IsZero() {
				at = t
			}
		}
		out = append(out, Event{At: at, Type: e.Type, Reason: e.Reason, Message: message, Count: int(e.Count)})
	}
	slices.SortStableFunc(out, func(a, b Event) int { return b.At.Compare(a.At) })
	return out[:min(len(out), eventsShown)], nil
}

package dialect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Terrier's own annotations by which users ask something of a stack. Every dialect
// reads them.
const (
	Rejected          = "terrier.dev/rejected"            // the name of a plan that a user rejected
	Comment           = "terrier.dev/comment"             // of the last approval or rejection
	Confirm           = kube.Confirm                      // the plan that another user approves as well, and any other words
	OverrideWindow    = kube.OverrideWindow               // the plan that a user wants to be applied outside of windows, and any other words
	IgnoreUntracked   = "terrier.dev/ignore-untracked"    // the run whose untracked resources a user dealt with
	Repair            = "terrier.dev/repair"              // JSON of a stack.Repair
	PreviewDestroy    = "terrier.dev/preview-destroy"     // a request
	Cancel            = "terrier.dev/cancel"              // the run that a user cancels
	AcceptDrift       = "terrier.dev/accept-drift"        // the drift that a user accepted: see stack.AcceptedDrift
	RollBack          = "terrier.dev/rollback"            // a request for a rollback, or for the end of one: see stack.RollbackRequest
	AcceptState       = "terrier.dev/accept-state"        // the digest of an unexpected state that a user accepted
	BreakGlassCommand = "terrier.dev/break-glass-command" // JSON of a stack.Command

	// The names of two of them before release 1, which are still read.
	oldIgnoreUntracked   = "terrier.dev/forget-gap"
	oldBreakGlassCommand = "terrier.dev/glass-command"
)

// Asked is what users ask of a stack with commands, beside what its spec describes.
// The first fields stand where each kind has a place for them, and the others in
// Terrier's own annotations.
type Asked struct {
	Approved  string // the name or digest of a plan, or what else the kind may say there
	Suspended bool
	Unlock    string // the foreign lock that may be broken
	Replan    string // the newest request for a plan
	Session   string // the break-glass session

	Rejected        string
	Comment         string
	Confirm         string
	OverrideWindow  string // as in the annotation
	DecidedBy       string // who approved or rejected last, as the API server stamps it; never written
	RequestedBy     string // the stamp of the changes of what plans are made from, likewise
	Approvals       string // the stamp of those of a plan, likewise
	Overrides       string // the stamp of those of windows, likewise
	Stamped         string // the epoch of these stamps, likewise
	IgnoreUntracked string
	Repair          *stack.Repair
	Preview         string
	AcceptDrift     string
	AcceptState     string
	RollBack        string
	Cancel          string         // a run
	Rerun           string         // a request for the steps after an apply
	Command         *stack.Command // in the session
}

// Annotated completes what the fields of an object ask with what its annotations ask.
// A repair that cannot be read is Invalid. A command that cannot be read is refused
// when it is run, so that its author is told.
func (a Asked) Annotated(o client.Object) (Asked, error) {
	says := o.GetAnnotations()
	a.Rejected, a.Comment, a.Preview, a.AcceptState = says[Rejected], says[Comment], says[PreviewDestroy], says[AcceptState]
	a.AcceptDrift, a.Rerun, a.RollBack = says[AcceptDrift], says[afterapply.Rerun], says[RollBack]
	a.DecidedBy, a.Cancel, a.Confirm = says[kube.DecidedBy], says[Cancel], says[Confirm]
	a.RequestedBy, a.Approvals, a.Overrides = says[kube.RequestedBy], says[kube.ApprovedBy], says[kube.OverriddenBy]
	a.OverrideWindow, a.Stamped = says[OverrideWindow], says[kube.Stamped]
	a.IgnoreUntracked = cmp.Or(says[IgnoreUntracked], says[oldIgnoreUntracked])
	if text := cmp.Or(says[BreakGlassCommand], says[oldBreakGlassCommand]); text != "" && a.Session != "" {
		var c stack.Command
		if err := json.Unmarshal([]byte(text), &c); err != nil || c.ID == "" {
			c = stack.Command{ID: stack.Digest(text), Session: a.Session}
		}
		a.Command = &c
	}
	if text, ok := says[Repair]; ok {
		var r stack.Repair
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return a, fault.New(fault.Invalid, "", fmt.Errorf("the annotation %s cannot be read: %w; write it with terrier repair, or remove it", Repair, err))
		}
		a.Repair = &r
	}
	return a, nil
}

// Into writes what has one meaning in every kind into a spec.
func (a Asked) Into(s *stack.Spec) {
	if s.Rejected = a.Rejected; a.Rejected != "" {
		s.RejectedBy, s.RejectedFor = a.DecidedBy, a.Comment
	}
	s.Confirms, s.Stamped = a.Confirm, a.Stamped
	for _, c := range kube.Changes(a.RequestedBy) {
		s.Changes = append(s.Changes, policy.Change{Number: c.Number, By: c.By})
	}
	for _, g := range kube.Approvals(a.Approvals) {
		s.Approvals = append(s.Approvals, policy.Given{Plan: g.Plan, By: g.By, Groups: g.Groups})
	}
	s.OverridesWindow = a.OverrideWindow
	for _, g := range kube.Approvals(a.Overrides) {
		s.Overrides = append(s.Overrides, policy.Given{Plan: g.Plan, By: g.By, Groups: g.Groups})
	}
	s.Cancel, s.IgnoreUntracked, s.Repair = a.Cancel, a.IgnoreUntracked, a.Repair
	s.AcceptsDrift, s.Rerun, s.RollBack = a.AcceptDrift, a.Rerun, a.RollBack
	s.Preview, s.AcceptState, s.BreakGlass, s.Command = a.Preview, a.AcceptState, a.Session, a.Command
}

// Annotate changes the annotations of an object, which asks for a, so that it asks
// for want. A command is of one session, and ends with it.
func (a Asked) Annotate(o client.Object, want Asked) {
	for name, v := range map[string]struct{ is, want string }{
		Rejected:         {a.Rejected, want.Rejected},
		Comment:          {a.Comment, want.Comment},
		Confirm:          {a.Confirm, want.Confirm},
		OverrideWindow:   {a.OverrideWindow, want.OverrideWindow},
		IgnoreUntracked:  {a.IgnoreUntracked, want.IgnoreUntracked},
		Repair:           {text(a.Repair), text(want.Repair)},
		PreviewDestroy:   {a.Preview, want.Preview},
		AcceptDrift:      {a.AcceptDrift, want.AcceptDrift},
		AcceptState:      {a.AcceptState, want.AcceptState},
		Cancel:           {a.Cancel, want.Cancel},
		afterapply.Rerun: {a.Rerun, want.Rerun},
		RollBack:         {a.RollBack, want.RollBack},
	} {
		if v.is != v.want {
			SetAnnotation(o, name, v.want)
		}
	}
	if a.IgnoreUntracked != want.IgnoreUntracked {
		SetAnnotation(o, oldIgnoreUntracked, "")
	}
	if a.Session != want.Session || text(a.Command) != text(want.Command) {
		SetAnnotation(o, oldBreakGlassCommand, "")
		SetAnnotation(o, BreakGlassCommand, text(want.Command))
	}
}

// SetAnnotation sets an annotation, or removes it if value is empty.
func SetAnnotation(o client.Object, name, value string) {
	says := maps.Clone(o.GetAnnotations())
	if says[name] == value {
		return
	}
	if says == nil {
		says = map[string]string{}
	}
	says[name] = value
	if value == "" {
		delete(says, name)
	}
	if len(says) == 0 {
		says = nil
	}
	o.SetAnnotations(says)
}

// text is v as JSON; empty if there is none.
func text[T any](v *T) string {
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic("dialect: encoding what users ask: " + err.Error()) // plain structs always encode
	}
	return string(b)
}

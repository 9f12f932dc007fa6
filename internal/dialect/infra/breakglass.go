package infra

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Annotations that begin a break-glass session and ask for a command in it.
const (
	BreakTheGlassAt   = "break-the-glass.tf-controller/requestedAt"
	BreakGlassCommand = "terrier.dev/break-glass-command" // JSON of a stack.Command

	// oldGlassCommand is the name of BreakGlassCommand before release 1; it is still
	// read.
	oldGlassCommand = "terrier.dev/glass-command"
)

// DropBreakGlassCommand removes the command that a session was asked for.
func DropBreakGlassCommand(annotations map[string]string) {
	delete(annotations, BreakGlassCommand)
	delete(annotations, oldGlassCommand)
}

// ConditionGlass is the condition about a break-glass session.
const ConditionGlass = "BreakTheGlass"

// bySpec is the session that the field asks for. It begins once: the field must be
// unset before it can begin another one.
const bySpec = "spec.breakTheGlass"

// sessionRunes bounds what is remembered of a session's name.
const sessionRunes = 64

// breakGlass reads which break-glass session is asked for, and which command in
// it. A command that cannot be read is refused when it is run, so that its
// author is told.
func breakGlass(obj *v1alpha2.Terraform, s *stack.Spec) {
	switch at := obj.Annotations[BreakTheGlassAt]; {
	case len(at) > sessionRunes:
		s.BreakGlass = stack.Digest(at)
	case at != "":
		s.BreakGlass = at
	case obj.Spec.BreakTheGlass:
		s.BreakGlass = bySpec
	default:
		return
	}
	text := cmp.Or(obj.Annotations[BreakGlassCommand], obj.Annotations[oldGlassCommand])
	if text == "" {
		return
	}
	var c stack.Command
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.ID == "" {
		c = stack.Command{ID: stack.Digest(text), Session: s.BreakGlass}
	}
	s.Command = &c
}

// sessionCondition sets the condition about the session.
func sessionCondition(c setter, s dialect.Report) {
	g := s.Status.BreakGlass
	switch {
	case s.BreakGlassDenied:
		c.set(ConditionGlass, metav1.ConditionFalse, "NotAllowed", "Breaking the glass is not allowed")
	case g == nil:
		c.drop(ConditionGlass)
	case !s.Now.Before(g.Until):
		c.set(ConditionGlass, metav1.ConditionFalse, "SessionOver", "The session expired at "+g.Until.UTC().Format(time.RFC3339)+". Begin another one with terrier break-glass"+lastBreakGlassCommand(s.Status))
	default:
		c.set(ConditionGlass, metav1.ConditionTrue, "SessionOpen", "Terrier plans and applies nothing by itself until "+g.Until.UTC().Format(time.RFC3339)+lastBreakGlassCommand(s.Status))
	}
}

// lastBreakGlassCommand is a sentence about the newest command of the session.
func lastBreakGlassCommand(m stack.Status) string {
	h := m.LastCommand
	if h == nil || h.Session != m.BreakGlass.Session {
		return ""
	}
	who := h.By
	if who == "" {
		who = "an unknown user"
	}
	return fmt.Sprintf(". Newest command, by %s: %s (%s)", who, h.Command, h.Outcome)
}

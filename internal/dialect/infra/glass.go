package infra

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Annotations by which the glass is broken, and a command is asked for behind it.
const (
	BreakTheGlassAt = "break-the-glass.tf-controller/requestedAt"
	GlassCommand    = "terrier.dev/glass-command" // JSON of a stack.Command
)

// ConditionGlass says how a session of work by hand stands.
const ConditionGlass = "BreakTheGlass"

// bySpec is the session that the field asks for. It begins once: to begin
// another one the field has to be taken back first.
const bySpec = "spec.breakTheGlass"

// sessionRunes bounds what is remembered of a session's name.
const sessionRunes = 64

// glass reads whether a person works on the stack by hand, and what is to be
// run for them. A command that cannot be read is one that is refused when it
// is run, so that whoever asked hears of it.
func glass(obj *v1alpha2.Terraform, s *stack.Spec) {
	switch at := obj.Annotations[BreakTheGlassAt]; {
	case len(at) > sessionRunes:
		s.Glass = stack.Digest(at)
	case at != "":
		s.Glass = at
	case obj.Spec.BreakTheGlass:
		s.Glass = bySpec
	default:
		return
	}
	text := obj.Annotations[GlassCommand]
	if text == "" {
		return
	}
	var c stack.Command
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.ID == "" {
		c = stack.Command{ID: stack.Digest(text), Session: s.Glass}
	}
	s.Command = &c
}

// glassed sets the condition about the session.
func glassed(c setter, s dialect.Report) {
	g := s.Status.Glass
	switch {
	case s.GlassDenied:
		c.set(ConditionGlass, metav1.ConditionFalse, "NotAllowed", "Breaking the glass is not allowed")
	case g == nil:
		c.drop(ConditionGlass)
	case !s.Now.Before(g.Until):
		c.set(ConditionGlass, metav1.ConditionFalse, "SessionOver", "The session ended by itself at "+g.Until.UTC().Format(time.RFC3339)+"; to begin another one, ask anew"+lastByHand(s.Status))
	default:
		c.set(ConditionGlass, metav1.ConditionTrue, "SessionOpen", "Nothing is planned or applied by itself until "+g.Until.UTC().Format(time.RFC3339)+lastByHand(s.Status))
	}
}

// lastByHand tells of the newest command of the session.
func lastByHand(m stack.Status) string {
	h := m.ByHand
	if h == nil || h.Session != m.Glass.Session {
		return ""
	}
	who := h.By
	if who == "" {
		who = "somebody"
	}
	return fmt.Sprintf(". Run last, by %s: %s (%s)", who, h.Command, h.Outcome)
}

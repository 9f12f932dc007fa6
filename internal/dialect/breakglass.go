package dialect

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/stack"
)

// ConditionGlass is the condition about a break-glass session, and reasonNotAllowed
// its reason where the platform allows none.
const (
	ConditionGlass   = "BreakTheGlass"
	reasonNotAllowed = "NotAllowed"
)

// sessionCondition sets the condition about the session.
func sessionCondition(c Conditions, s Summary) {
	g := s.Status.BreakGlass
	switch {
	case s.BreakGlassDenied:
		c.Set(ConditionGlass, metav1.ConditionFalse, reasonNotAllowed, "Breaking the glass is not allowed")
	case g == nil:
		c.Drop(ConditionGlass)
	case !s.Now.Before(g.Until):
		c.Set(ConditionGlass, metav1.ConditionFalse, "SessionOver", "The session expired at "+g.Until.UTC().Format(time.RFC3339)+". Begin another one with terrier break-glass"+lastBreakGlassCommand(s.Status))
	default:
		c.Set(ConditionGlass, metav1.ConditionTrue, "SessionOpen", "Terrier plans and applies nothing by itself until "+g.Until.UTC().Format(time.RFC3339)+lastBreakGlassCommand(s.Status))
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

package infra

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestDecodeBreakGlass(t *testing.T) {
	for name, tt := range map[string]struct {
		field       bool
		annotations map[string]string
		session     string
		command     *stack.Command
	}{
		"no session is asked for": {annotations: map[string]string{dialect.BreakGlassCommand: `{"id":"1","args":["plan"]}`}},
		"the field":               {field: true, session: "spec.breakTheGlass"},
		"the annotation":          {annotations: map[string]string{BreakTheGlassAt: "t1"}, session: "t1"},
		"the annotation wins":     {field: true, annotations: map[string]string{BreakTheGlassAt: "t1"}, session: "t1"},
		"a long name is not kept whole": {
			annotations: map[string]string{BreakTheGlassAt: strings.Repeat("x", 200_000)}, session: stack.Digest(strings.Repeat("x", 200_000)),
		},
		"a command": {
			annotations: map[string]string{BreakTheGlassAt: "t1", dialect.BreakGlassCommand: `{"id":"1","session":"t1","by":"ann","args":["state","list"]}`}, session: "t1",
			command: &stack.Command{ID: "1", Session: "t1", By: "ann", Args: []string{"state", "list"}},
		},
		"a command under its former name": {
			annotations: map[string]string{BreakTheGlassAt: "t1", "terrier.dev/glass-command": `{"id":"1","session":"t1"}`}, session: "t1",
			command: &stack.Command{ID: "1", Session: "t1"},
		},
		"the new name wins": {
			annotations: map[string]string{BreakTheGlassAt: "t1", "terrier.dev/glass-command": `{"id":"1"}`, dialect.BreakGlassCommand: `{"id":"2"}`}, session: "t1",
			command: &stack.Command{ID: "2"},
		},
		"a command that cannot be read is answered, too": {
			annotations: map[string]string{BreakTheGlassAt: "t1", dialect.BreakGlassCommand: `state list`}, session: "t1",
			command: &stack.Command{ID: stack.Digest("state list"), Session: "t1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := object(t, `{values: {hcl: x}}`)
			obj.Annotations, obj.Spec.BreakTheGlass = tt.annotations, tt.field
			got, err := Dialect{}.Decode(obj)
			if err != nil {
				t.Fatal(err)
			}
			if got.Spec.BreakGlass != tt.session {
				t.Errorf("session = %.80q, want %.80q", got.Spec.BreakGlass, tt.session)
			}
			if diff := cmp.Diff(got.Spec.Command, tt.command); diff != "" {
				t.Errorf("command (-got +want):\n%s", diff)
			}
		})
	}
}

func TestBreakGlassIsShown(t *testing.T) {
	session := &stack.BreakGlass{Session: "t1", At: noon, Until: noon.Add(time.Hour)}
	ran := &stack.CommandResult{Command: stack.Command{Session: "t1", By: "ann", Args: []string{"state", "list"}}, Outcome: stack.Succeeded}
	for name, tt := range map[string]struct {
		status  dialect.Summary
		reason  string // empty: there is no condition
		message string
	}{
		"nobody asked": {dialect.Summary{Now: noon}, "", ""},
		"not allowed":  {dialect.Summary{Now: noon, BreakGlassDenied: true}, "NotAllowed", "Breaking the glass is not allowed"},
		"open":         {dialect.Summary{Now: noon, Status: stack.Status{Answers: stack.Answers{BreakGlass: session}}}, "SessionOpen", "Terrier plans and applies nothing by itself until 2026-01-01T13:00:00Z"},
		"a command was run": {dialect.Summary{Now: noon, Status: stack.Status{Answers: stack.Answers{BreakGlass: session, LastCommand: ran}}}, "SessionOpen",
			"Terrier plans and applies nothing by itself until 2026-01-01T13:00:00Z. Newest command, by ann: state list (Succeeded)"},
		"over": {dialect.Summary{Now: noon.Add(time.Hour), Status: stack.Status{Answers: stack.Answers{BreakGlass: session}}}, "SessionOver",
			"The session expired at 2026-01-01T13:00:00Z. Begin another one with terrier break-glass"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &v1alpha2.Terraform{}
			tt.status.Decision = stack.Decision{Ready: stack.Held, Reason: stack.BreakGlassSession, Message: "m"}
			Dialect{}.Encode(obj, tt.status)
			c := meta.FindStatusCondition(obj.Status.Conditions, dialect.ConditionGlass)
			if (c == nil) != (tt.reason == "") || c != nil && (c.Reason != tt.reason || c.Message != tt.message) {
				t.Errorf("condition = %+v, want %s %q", c, tt.reason, tt.message)
			}
		})
	}
}

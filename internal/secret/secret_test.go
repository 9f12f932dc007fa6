package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestTextDoesNotShowItself(t *testing.T) {
	const canary = "hunter2"
	s := New(canary)
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "s", s)
	marshalled, err := json.Marshal(map[string]any{"s": s, "p": &s})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s, s), fmt.Sprint(struct{ S Text }{s}), logged.String(), string(marshalled)} {
		if strings.Contains(got, canary) {
			t.Errorf("shown: %s", got)
		}
	}
	if got := s.Reveal(); got != canary {
		t.Errorf("Reveal() = %q, want %q", got, canary)
	}
}

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A stop that a user asked for succeeds although a reconcile went on for too long. The same
// error of a manager that was not stopped ends the program with it.
func TestAReconcileThatGoesOnAfterAStop(t *testing.T) {
	late := fmt.Errorf("failed waiting for all runnables to end: %w", context.DeadlineExceeded)
	broken := errors.New("the cache is broken")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		name      string
		ctx       context.Context
		err, want error
		said      string
	}{
		{"late", stopped, late, nil, endedLate},
		{"broken", stopped, broken, broken, ""},
		{"it was not stopped", t.Context(), late, late, ""},
		{"in time", stopped, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			if err := inTime(c.ctx, slog.New(slog.NewTextHandler(&log, nil)), c.err); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
			if got := log.String(); !strings.Contains(got, c.said) || c.said == "" && got != "" {
				t.Errorf("it logs %q, want %q", got, c.said)
			}
		})
	}
}

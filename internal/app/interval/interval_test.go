package interval

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// There is a turn at the end of each interval and none at the beginning, those that are over while one goes
// on are skipped, and the end of the context is the end.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		var turns []time.Duration
		for range Turns(ctx, time.Minute) {
			turns = append(turns, time.Since(began))
			switch len(turns) {
			case 2:
				<-time.After(2*time.Minute + time.Second) // longer than two intervals
			case 4:
				cancel()
			}
		}
		if took := time.Since(began); took != turns[3] {
			t.Errorf("it ends after %s, and the context after %s", took, turns[3])
		}
		want := []time.Duration{time.Minute, 2 * time.Minute, 4*time.Minute + time.Second, 5 * time.Minute}
		if len(turns) != len(want) {
			t.Fatalf("there are turns after %v, want %v", turns, want)
		}
		for i := range want {
			if turns[i] != want[i] {
				t.Errorf("there are turns after %v, want %v", turns, want)
			}
		}
		for range Turns(ctx, time.Minute) {
			t.Error("there is a turn after the end of the context")
		}
		for range Turns(t.Context(), time.Minute) {
			break // a turn may be the last one
		}
	})
}

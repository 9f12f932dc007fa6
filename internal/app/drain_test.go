package app

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
)

// endingRuns are runs of which one ends each time that an end is heard of.
type endingRuns struct {
	runner.Runner
	active    []runner.Report
	ended     chan string
	cancelled []string
	stubborn  bool            // a run ends only when it is interrupted
	fail      []error         // what List returns beside the runs, the last one again and again
	hidden    []runner.Report // that it returns only without an error
}

func (r *endingRuns) List() ([]runner.Report, error) {
	if len(r.active) > 0 && !r.stubborn {
		r.active = r.active[1:]
		r.ended <- "a"
	}
	if len(r.fail) == 0 {
		return r.active, nil
	}
	err := r.fail[0]
	if len(r.fail) > 1 {
		r.fail = r.fail[1:]
	}
	if err == nil {
		r.active, r.hidden = slices.Concat(r.hidden, r.active), nil
	}
	if !runner.Listed(err) {
		return nil, err
	}
	return r.active, err
}

func (r *endingRuns) Ended() <-chan string { return r.ended }

func (r *endingRuns) Cancel(_ context.Context, key, _ string) error {
	r.cancelled = append(r.cancelled, key)
	r.stubborn = false
	r.ended <- key
	return nil
}

// A program that is stopped waits for its runs, and interrupts those that take long.
func TestDrain(t *testing.T) {
	unread := runner.Unread{Err: errors.New("the run of d: its state cannot be saved")}
	two := []runner.Report{{Stack: "a", Phase: "applying"}, {Stack: "b", Phase: "planning"}, {Stack: "c", Phase: runner.Done}}
	for name, tt := range map[string]struct {
		runs   *endingRuns
		within time.Duration
		left   int
		cut    int
	}{
		"off":                               {&endingRuns{active: two}, 0, 3, 0},
		"runs that end":                     {&endingRuns{active: two}, time.Hour, 1, 0},
		"runs that do not end soon":         {&endingRuns{active: two[:2], stubborn: true}, time.Millisecond, 0, 2},
		"with one that cannot be read":      {&endingRuns{active: two, stubborn: true, fail: []error{unread}}, time.Millisecond, 1, 2},
		"with nothing else":                 {&endingRuns{active: two[2:], stubborn: true, fail: []error{unread}}, time.Millisecond, 1, 0},
		"with one that is read later":       {&endingRuns{active: two[2:], hidden: two[:2], stubborn: true, fail: []error{unread, nil}}, 2 * drainEvery, 1, 2},
		"that cannot be listed for a while": {&endingRuns{active: two[:2], stubborn: true, fail: []error{errors.New("no"), nil}}, time.Nanosecond, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			tt.runs.ended = make(chan string, 10)
			drain(tt.runs, tt.within, Options{Stderr: io.Discard})
			if len(tt.runs.active) != tt.left || len(tt.runs.cancelled) != tt.cut {
				t.Errorf("%d runs are left and %d were interrupted, want %d and %d", len(tt.runs.active), len(tt.runs.cancelled), tt.left, tt.cut)
			}
		})
	}
}

package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// lockOnly is one lock, and a state that may fail to load.
type lockOnly struct {
	States
	held string
	fail error
}

func (l *lockOnly) Lock(_ context.Context, _ kube.StateRef, info kube.LockInfo) error {
	if l.held != "" && l.held != info.ID {
		return &kube.LockedError{Holder: kube.LockInfo{ID: l.held}}
	}
	l.held = info.ID
	return nil
}

func (l *lockOnly) Unlock(_ context.Context, _ kube.StateRef, id string) error {
	if l.held == id {
		l.held = ""
	}
	return nil
}

func (l *lockOnly) Load(context.Context, kube.StateRef) ([]byte, string, error) {
	return nil, "", l.fail
}

// starter fails to start runs, before or after they are there.
type starter struct {
	Runner
	fail    error
	started *runner.Report
	late    bool
}

func (s *starter) Start(_ context.Context, job runner.Job) error {
	if s.fail == nil || s.late {
		s.started = &runner.Report{ID: job.ID}
	}
	return s.fail
}

func (s *starter) Current(string) (*runner.Report, error) { return s.started, nil }

func TestALockIsFreedIfItsRunDoesNotStart(t *testing.T) {
	failed := errors.New("no")
	for name, tt := range map[string]struct {
		held        string
		load, start error
		late        bool
		want        bool // the run holds the lock afterwards
	}{
		"all is well":                {want: true},
		"the state cannot be loaded": {load: failed},
		"the run cannot be started":  {start: failed},
		"it started all the same":    {start: failed, late: true, want: true},
		"somebody else holds it":     {held: "foreign"},
	} {
		t.Run(name, func(t *testing.T) {
			lock := &lockOnly{held: tt.held, fail: tt.load}
			c := &Stacks{States: lock, Runner: &starter{fail: tt.start, late: tt.late}, queue: newQueue(1, nil)}
			p := &pass{obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
			err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, "")
			if (err == nil) != (tt.held == "" && tt.load == nil && tt.start == nil) {
				t.Errorf("launch() error = %v", err)
			}
			want := tt.held
			if tt.want {
				want = p.name(stack.ApplyRun, stack.Cause{})
			}
			if lock.held != want {
				t.Errorf("the lock is held by %q afterwards, want %q", lock.held, want)
			}
		})
	}
}

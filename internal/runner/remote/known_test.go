package remote_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner/remote"
)

// A change of who has a run, or of whether it can be read, may come between any two of the
// questions that the answer to its agent takes. The agent of a run that goes on is never told
// that the run is gone: that ends the run.
func TestNoMomentTellsAnAgentThatItsRunIsGone(t *testing.T) {
	s := newSite(t)
	s.launcher.Hold = true
	dir := t.TempDir()
	c := s.open(dir, shared)
	s.serve.Store(nil)
	if err := c.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	const key, id = "a", "run"
	if err := c.Start(t.Context(), bare(key, id)); err != nil {
		t.Fatal(err)
	}
	place := c.PlaceOf(key, id)
	stranger := remote.Place{Namespace: place.Namespace, Name: "another", UID: "another"}

	obstacle := filepath.Join(dir, "runs", key) // a file there keeps the place from being adopted
	give := func() error { return c.Give(t.Context(), all()) }
	block := func() error { return errors.Join(os.RemoveAll(obstacle), os.WriteFile(obstacle, nil, 0o600)) }
	take := func() error { return errors.Join(os.RemoveAll(obstacle), c.Take(t.Context(), all())) }
	takeUnread := func() error { return errors.Join(block(), c.Take(t.Context(), all())) }
	read := func() error {
		err := os.RemoveAll(obstacle)
		c.ReadAgain()
		return err
	}
	taken, away, unread := []func() error{give, take}, []func() error{give}, []func() error{give, takeUnread}
	do := func(steps ...func() error) {
		t.Helper()
		for _, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		from, happens []func() error
	}{
		"nothing":                             {taken, nil},
		"given away":                          {taken, []func() error{give}},
		"given away, and back":                {taken, []func() error{give, take}},
		"given away, and back unread":         {taken, []func() error{give, takeUnread, read}},
		"taken":                               {away, []func() error{take}},
		"taken, and not read":                 {away, []func() error{takeUnread}},
		"taken, and read later":               {away, []func() error{takeUnread, read}},
		"read again":                          {unread, []func() error{read}},
		"given away before it could be read":  {unread, []func() error{give}},
		"read again, given away, and back":    {unread, []func() error{read, give, take}},
		"given away before that, and back":    {unread, []func() error{give, take}},
		"given away before that, and as such": {unread, []func() error{give, takeUnread}},
	} {
		t.Run(name, func(t *testing.T) {
			const questions = 6 // one more than an answer takes while nothing changes
			for _, at := range moments(len(tt.happens), questions) {
				do(tt.from...)
				asked, done := 0, 0
				gone := c.ToldGone(place, key, func() {
					for asked++; done < len(at) && at[done] < asked; done++ {
						do(tt.happens[done])
					}
				})
				if gone {
					t.Errorf("the agent is told that its run is gone, with the changes before the questions %v", at)
				}
			}
		})
	}

	for name, tt := range map[string]struct {
		from []func() error
		gone bool
	}{"taken": {taken, true}, "away": {away, false}, "unread": {unread, false}} {
		do(tt.from...)
		if got := c.ToldGone(stranger, key, func() {}); got != tt.gone {
			t.Errorf("%s: an agent without a run is told that its run is gone: %v, want %v", name, got, tt.gone)
		}
	}
	do(taken...)
}

// A list of places from before shards were given and taken says nothing of the keys that came back:
// a run may have begun with another controller meanwhile.
func TestAnOldListOfPlacesReadsNoKeyAgain(t *testing.T) {
	s := newSite(t)
	s.launcher.Hold = true
	dir := t.TempDir()
	c := s.open(dir, shared)
	s.serve.Store(nil)
	const key, id = "a", "run"
	obstacle := filepath.Join(dir, "runs", key)
	if err := errors.Join(os.WriteFile(obstacle, nil, 0o600), c.Take(t.Context(), all())); err != nil {
		t.Fatal(err)
	}
	other := s.open(t.TempDir(), shared)
	s.serve.Store(nil)
	begin := func(id string) remote.Place {
		t.Helper()
		if err := errors.Join(other.Take(t.Context(), all()), other.Start(t.Context(), bare(key, id))); err != nil {
			t.Fatal(err)
		}
		p := other.PlaceOf(key, id)
		if err := other.Give(t.Context(), all()); err != nil {
			t.Fatal(err)
		}
		return p
	}
	move := func() {
		t.Helper()
		if err := errors.Join(c.Give(t.Context(), all()), c.Take(t.Context(), all())); err != nil {
			t.Fatal(err)
		}
	}
	first := begin(id)
	move()
	var second remote.Place
	c.ReadAgainLate(t.Context(), func() {
		if err := errors.Join(c.Give(t.Context(), all()), s.launcher.Kill(first), s.launcher.End(t.Context(), first, 0)); err != nil {
			t.Fatal(err)
		}
		await(t, "the place is gone", func() bool {
			life, err := s.launcher.Look(t.Context(), first)
			return err == nil && life.State == remote.Gone
		})
		second = begin("next")
		if err := c.Take(t.Context(), all()); err != nil {
			t.Fatal(err)
		}
	})
	if r, err := c.Current(key); err == nil {
		t.Errorf("Current() = %+v, want why it cannot be read", r)
	}
	if c.ToldGone(second, key, func() {}) {
		t.Error("the agent of the next run is told that its run is gone")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	c.ReadAgain()
	if r, err := c.Current(key); err != nil || r == nil || r.ID != "next" {
		t.Errorf("Current() = %+v, %v, want the next run", r, err)
	}
}

// moments are all ways to put n changes, in their order, in front of questions.
func moments(n, questions int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, before := range moments(n-1, questions) {
		least := 0
		if n > 1 {
			least = before[n-2]
		}
		for at := least; at < questions; at++ {
			all = append(all, append(before[:n-1:n-1], at))
		}
	}
	return all
}

package remote_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/remotetest"
)

// unhurried is a launcher whose places do not end when they are asked to.
type unhurried struct {
	*remotetest.Launcher
	asked atomic.Int32
}

func (u *unhurried) End(context.Context, remote.Place, time.Duration) error {
	u.asked.Add(1)
	return nil
}

// The place of a run that has ended is there until nothing runs in it any more, also for
// the next controller. It is asked to end once, whatever else changes meanwhile.
func TestPlacesRemain(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	s.launcher.Hold = true
	slow := &unhurried{Launcher: s.launcher}
	change := func(c *remote.Config) { c.Launcher = slow }
	first := s.open(dir, change)
	if err := first.Start(t.Context(), bare("a", "run")); err != nil {
		t.Fatal(err)
	}
	if got := first.Remains(""); len(got) != 0 {
		t.Fatalf("Remains() = %v while the run goes on, want none", got)
	}
	p := first.PlaceOf("a", "run")
	if err := first.Cancel(t.Context(), "a", "run"); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, first, "a")
	left := first.Remains("a")
	if len(left) != 1 || left[0].Stack != "a" || left[0].Namespace != "test" {
		t.Fatalf("Remains() = %v after the end of the run, want its place", left)
	}
	if err := first.Forget("a", "run"); err != nil {
		t.Fatal(err)
	}
	await(t, "the place is asked to end", func() bool { return slow.asked.Load() > 0 })
	for range 20 {
		s.launcher.Tell(p)
	}
	if n := slow.asked.Load(); n != 1 {
		t.Errorf("the place was asked to end %d times, want once", n)
	}
	if diff := cmp.Diff(left, first.Remains("")); diff != "" {
		t.Errorf("Remains() after the run was forgotten (-before +after):\n%s", diff)
	}
	if got := first.Remains("b"); len(got) != 0 {
		t.Errorf("Remains() = %v of another stack, want none", got)
	}
	s.close(first)
	second := s.open(dir, change)
	if diff := cmp.Diff(left, second.Remains("")); diff != "" {
		t.Errorf("Remains() of the next controller (-first +second):\n%s", diff)
	}
	await(t, "the next controller asks the place to end", func() bool { return slow.asked.Load() > 1 })
	if err := s.launcher.End(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	s.launcher.Tell(p)
	var vacated runner.Remain
	select {
	case vacated = <-second.Vacated():
	case <-time.After(within):
		t.Fatal("the end of the place is not told")
	}
	if vacated != left[0] {
		t.Errorf("%v is vacated, want %v", vacated, left[0])
	}
	awaitRemoved(t, dir)
	if got := second.Remains(""); len(got) != 0 {
		t.Errorf("Remains() = %v once the place is gone, want none", got)
	}
}

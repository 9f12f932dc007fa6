package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// order asks for the order as an agent does, which begins its run only after its first
// report was taken, or as one of an earlier release.
func order(t *testing.T, c *controller, token string, waits bool) (proof string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, wire.Order, nil)
	req.Header.Set("Authorization", token)
	if waits {
		req.Header.Set(wire.HeaderWaits, "true")
	}
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("asking for the order = %d %s", w.Code, w.Body)
	}
	return w.Header().Get(wire.HeaderProof)
}

// A run that is cancelled, or late, while its agent prepares it has ended at once and
// never begins: the agent hears that its first report is not taken.
func TestRunIsWithdrawnBeforeItBegins(t *testing.T) {
	for name, tt := range map[string]struct {
		limit   time.Duration
		cancel  bool
		outcome stack.Outcome
		says    string
	}{
		"cancelled": {time.Hour, true, stack.Interrupted, "cancelled before it began"},
		"late":      {time.Nanosecond, false, stack.Failed, "did not begin the run within"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c, token := s.held(dir, func(c *remote.Config) { c.StartLimit = time.Hour })
			proof := order(t, c, token, true)
			if tt.limit != time.Hour {
				s.close(c)
				c = s.open(dir, func(c *remote.Config) { c.StartLimit = tt.limit })
				s.launcher.Tell(c.PlaceOf("a", "run"))
			}
			if tt.cancel {
				if err := c.Cancel(t.Context(), "a", "run"); err != nil {
					t.Fatal(err)
				}
			}
			if r := awaitDone(t, c, "a"); r.Outcome != tt.outcome || !strings.Contains(r.Message, tt.says) {
				t.Errorf("ended %s: %s", r.Outcome, r.Message)
			}
			first := []byte(`{"report":{"phase":"Starting"},"files":{}}`)
			if got := asked(c.Handler(), http.MethodPut, wire.Report, token, proof, first); got.Code == http.StatusNoContent {
				t.Error("the first report is taken")
			}
			awaitRemoved(t, dir)
		})
	}
}

// The place of an agent that got its order and may have begun the run, but never reports,
// is ended: that of a run which writes nothing once the run is late, any when its run is
// cancelled. The run is over once the place is.
func TestPlaceThatNeverReports(t *testing.T) {
	for name, tt := range map[string]struct {
		limit  time.Duration
		cancel bool
	}{
		"cancelled": {time.Hour, true},
		"late":      {time.Nanosecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c, token := s.held(dir, func(c *remote.Config) { c.StartLimit = time.Hour })
			order(t, c, token, false)
			if tt.limit != time.Hour {
				s.close(c)
				c = s.open(dir, func(c *remote.Config) { c.StartLimit = tt.limit })
			}
			p := c.PlaceOf("a", "run")
			if tt.cancel {
				if err := c.Cancel(t.Context(), "a", "run"); err != nil {
					t.Fatal(err)
				}
			}
			s.launcher.Tell(p)
			await(t, "the place is gone", func() bool {
				_, err := os.Stat(s.launcher.PlaceDir(p))
				return os.IsNotExist(err)
			})
			if r := awaitDone(t, c, "a"); r.Outcome != stack.Killed || !strings.Contains(r.Message, "the pod ended while the run was Starting") {
				t.Errorf("ended %s: %s", r.Outcome, r.Message)
			}
		})
	}
}

// withoutArchive has no archive any more.
type withoutArchive struct {
	runner.Contents
	gone atomic.Bool
}

func (c *withoutArchive) Archive(ctx context.Context, digest string) (string, error) {
	if c.gone.Load() {
		return "", errors.New("the store does not answer")
	}
	return c.Contents.Archive(ctx, digest)
}

// An agent that cannot get what its run needs can be cancelled, and ends by itself.
func TestCancelReachesAnAgentThatPrepares(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	host := runnertest.NewHost()
	contents := &withoutArchive{Contents: host}
	c := s.open(dir, func(c *remote.Config) { c.Contents = contents })
	c.host = host
	st := runnertest.NewStack(t, c, tofu(t), "")
	file := write(t, "an archive", t.TempDir(), "archive.tar.gz")
	st.Archive(file, stack.Sum([]byte("an archive")))
	s.launcher.Hold = true
	id := st.Start(stack.PlanRun)
	contents.gone.Store(true)
	if err := os.Remove(c.Dir(st.Job.Stack, id) + "/archive.tar.gz"); err != nil {
		t.Fatal(err)
	}
	p := c.PlaceOf(st.Job.Stack, id)
	if err := s.launcher.Start(p); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent has asked for the archive", func() bool {
		log, err := os.ReadFile(s.launcher.PlaceDir(p) + "/agent.log")
		return err == nil && strings.Contains(string(log), "archive not received yet")
	})
	if err := c.Cancel(t.Context(), st.Job.Stack, id); err != nil {
		t.Fatal(err)
	}
	if d := st.Finish(id); d.Outcome != stack.Interrupted {
		t.Errorf("ended %s: %s", d.Outcome, d.Message)
	}
	awaitRemoved(t, dir)
}

// full is a launcher whose places have found no room for a minute.
type full struct{ remote.Launcher }

func (full) Look(context.Context, remote.Place) (remote.Life, error) {
	return remote.Life{State: remote.Pending, Lacks: remote.Room, Message: "the pod waits for a node: Insufficient cpu", Since: time.Now().Add(-time.Minute)}, nil
}

// LQ-03: a run whose place finds no room has ended without having begun, and may be
// started again. Its agent never gets the order.
func TestPlaceWithoutRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		limit time.Duration
		ends  bool
	}{
		"for long enough":   {time.Second, true},
		"not yet for long":  {time.Hour, false},
		"as long as it may": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c, token := s.held(dir, func(c *remote.Config) { c.Launcher, c.RoomLimit = full{s.launcher}, tt.limit })
			s.launcher.Tell(c.PlaceOf("a", "run"))
			if !tt.ends {
				await(t, "the report says what the place waits for", func() bool {
					r, err := c.Current("a")
					return err == nil && r.Phase == runner.Starting && r.Message == "the pod waits for a node: Insufficient cpu"
				})
				order(t, c, token, true)
				return
			}
			if r := awaitDone(t, c, "a"); r.Outcome != stack.Interrupted || r.Reason != runner.NoRoom || !strings.Contains(r.Message, "Insufficient cpu") {
				t.Errorf("ended %s for %q: %s", r.Outcome, r.Reason, r.Message)
			}
			if got := asked(c.Handler(), http.MethodPost, wire.Order, token, "", nil); got.Code == http.StatusOK {
				t.Error("the agent gets the order of a run that was withdrawn")
			}
			if err := c.Forget("a", "run"); err != nil {
				t.Fatal(err)
			}
			await(t, "the place is gone", func() bool {
				left, err := os.ReadDir(s.launcher.Dir)
				return err == nil && len(left) == 0
			})
		})
	}
}

// withoutImage is a launcher whose places get no image. The second answer says less, as that
// of a kubelet may.
type withoutImage struct {
	remote.Launcher
	lacks remote.Lack
	seen  *atomic.Int64
}

func (w withoutImage) Look(context.Context, remote.Place) (remote.Life, error) {
	life := remote.Life{State: remote.Pending, Reason: "ErrImagePull", Lacks: w.lacks, Message: "the image is not there"}
	if w.seen.Add(1) > 1 {
		life = remote.Life{State: remote.Pending, Reason: "ImagePullBackOff", Lacks: remote.Image, Message: "the image is not there"}
	}
	return life, nil
}

// A run whose place does not get its image gives its slot back before long. It has failed
// only if the registry of an image that the stack chose has said no.
func TestPlaceWithoutImage(t *testing.T) {
	for name, tt := range map[string]struct {
		lacks   remote.Lack
		limit   time.Duration
		after   time.Duration
		outcome stack.Outcome // empty if it goes on
		reason  string
	}{
		"the registry is out":              {remote.Image, time.Minute, time.Minute, stack.Interrupted, runner.NoImage},
		"… and may be for long":            {remote.Image, 0, time.Minute, "", ""},
		"… and was not for long":           {remote.Image, time.Minute, time.Second, "", ""},
		"the registry refuses":             {remote.UsableImage, time.Minute, time.Minute, stack.Failed, "ErrImagePull"},
		"… whatever the limit is":          {remote.UsableImage, 0, time.Minute, stack.Failed, "ErrImagePull"},
		"… and may have the image at once": {remote.UsableImage, time.Minute, time.Second, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, seen := newSite(t), &atomic.Int64{}
			var later atomic.Int64
			c, token := s.held(t.TempDir(), func(c *remote.Config) {
				c.Launcher, c.RoomLimit = withoutImage{s.launcher, tt.lacks, seen}, tt.limit
				c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
			})
			s.launcher.Tell(c.PlaceOf("a", "run"))
			await(t, "the report says what the place waits for", func() bool {
				r, err := c.Current("a")
				return err == nil && r.Phase == runner.Starting && r.Message == "the image is not there"
			})
			later.Store(int64(tt.after))
			before := seen.Load()
			s.launcher.Tell(c.PlaceOf("a", "run"))
			if tt.outcome == "" {
				await(t, "the place was looked at again", func() bool { return seen.Load() > before })
				order(t, c, token, true)
				return
			}
			r := awaitDone(t, c, "a")
			if r.Outcome != tt.outcome || r.Reason != tt.reason || runner.NeverBegan(r.Reason) != (tt.outcome == stack.Interrupted) || !strings.Contains(r.Message, "the image is not there") {
				t.Errorf("ended %s for %q: %s; want %s for %q", r.Outcome, r.Reason, r.Message, tt.outcome, tt.reason)
			}
			if got := asked(c.Handler(), http.MethodPost, wire.Order, token, "", nil); got.Code == http.StatusOK {
				t.Error("the agent gets the order of a run that was withdrawn")
			}
		})
	}
}

// alive is a launcher whose places all run.
type alive struct{ remote.Launcher }

func (alive) Look(context.Context, remote.Place) (remote.Life, error) {
	return remote.Life{State: remote.Running}, nil
}

// F11: an agent that does not reach the controller is no silent wait.
func TestAgentThatIsNotHeardOf(t *testing.T) {
	s := newSite(t)
	var later atomic.Int64
	c, token := s.held(t.TempDir(), func(c *remote.Config) {
		c.Launcher = alive{s.launcher}
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	proof := order(t, c, token, true)
	report := func() {
		t.Helper()
		body := []byte(`{"report":{"phase":"Planning"},"files":{}}`)
		if got := asked(c.Handler(), http.MethodPut, wire.Report, token, proof, body); got.Code == http.StatusForbidden {
			t.Fatalf("a report = %d %s", got.Code, got.Body)
		}
	}
	report()
	p := c.PlaceOf("a", "run")
	await(t, "the report says that the pod is not heard of", func() bool {
		later.Add(int64(time.Hour))
		s.launcher.Tell(p)
		r, err := c.Current("a")
		return err == nil && r.Phase == runner.Planning && strings.Contains(r.Message, "the pod "+p.Name+" has not reached this controller since") &&
			strings.Contains(r.Message, "kubectl -n test logs "+p.Name)
	})
	await(t, "the report says nothing once it is", func() bool {
		report()
		s.launcher.Tell(p)
		r, err := c.Current("a")
		return err == nil && r.Message == ""
	})
}

package remote_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/apart"
)

// F42: a disk of the controller that is full while a run ends. The run is not harmed,
// nothing is half stored, and all of it arrives once there is space.
func TestControllerHasNoSpace(t *testing.T) {
	dir := apart.Disk(t, 24, 0o711)
	if dir == "" {
		return
	}
	s := newSite(t)
	c := s.open(dir)
	st, g, id := applying(t, c)
	filling := filepath.Join(dir, "filling")
	f, err := os.Create(filling)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, zeros{})
	if err = errors.Join(err, f.Close()); !disk.IsNoSpace(err) {
		t.Fatalf("filling the disk: %v", err)
	}
	var full atomic.Int64
	good := *s.serve.Load()
	var counting http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		good.ServeHTTP(&statusWriter{w, &full}, r)
	})
	s.serve.Store(&counting)
	g.Open(t)
	await(t, "the run has ended in its place", func() bool { return s.ended(id) })
	n := full.Load()
	await(t, "the controller had no space for it", func() bool { return full.Load() > n })
	if r := st.Current(); r == nil || r.Phase == runner.Done {
		t.Errorf("Current() = %+v, want a run that goes on", r)
	}
	if err := os.Remove(filling); err != nil {
		t.Fatal(err)
	}
	d := st.Finish(id)
	if d.Outcome != stack.Succeeded || d.Resources != 2 || strings.Count(string(d.Events), `"type":"apply_complete"`) != 2 || !runnertest.Has("Apply complete", d.Log) {
		t.Errorf("ended %s with %d resources: %s\n%s", d.Outcome, d.Resources, d.Message, d.Events)
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// statusWriter counts the answers that there is no space.
type statusWriter struct {
	http.ResponseWriter
	full *atomic.Int64
}

func (w *statusWriter) WriteHeader(status int) {
	if status == http.StatusInsufficientStorage {
		w.full.Add(1)
	}
	w.ResponseWriter.WriteHeader(status)
}

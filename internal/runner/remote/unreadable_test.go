package remote_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
)

// removalOf is the name of the file of a place that has to be removed.
func removalOf(p remote.Place) string {
	return fmt.Sprintf("%x.json", sha256.Sum256([]byte(p.Namespace+"/"+p.Name+"/"+p.UID)))
}

// A place whose file cannot be read is removed like any other, is not adopted, and keeps its stack
// from a run until it is gone. No other stack notices.
func TestARemovalThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		file func(remote.Place) remote.Place // as it names the place
	}{
		"cut off":                   {`{"place":{"name":"x`, func(p remote.Place) remote.Place { return p }},
		"empty":                     {"", func(p remote.Place) remote.Place { return p }},
		"of no place":               {"{}", func(p remote.Place) remote.Place { return p }},
		"without the UID":           {"\x00\x00", func(p remote.Place) remote.Place { p.UID = ""; return p }},
		"with nothing but the name": {"\x00\x00", func(p remote.Place) remote.Place { return remote.Place{Name: p.Name} }},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			s.launcher.Hold = true
			c := s.open(dir)
			if err := c.Start(t.Context(), bare("a", "run")); err != nil {
				t.Fatal(err)
			}
			p := c.PlaceOf("a", "run")
			s.close(c)
			if err := os.RemoveAll(filepath.Join(dir, "runs", "a")); err != nil { // the run was forgotten
				t.Fatal(err)
			}
			write(t, tt.text, dir, "removals", removalOf(tt.file(p)))
			c = s.open(dir)
			if r, err := c.Current("a"); r != nil || err != nil {
				t.Errorf("Current() = %+v, %v, want that the place is not adopted", r, err)
			}
			// The place may be gone by now; until then the answer names the file.
			if err := c.Start(t.Context(), bare("a", "next")); err != nil &&
				(fault.Reason(err, "") != runner.StackBusy || !strings.Contains(err.Error(), removalOf(tt.file(p))) && tt.text != "{}") {
				t.Errorf("Start() = %v, want that an earlier place is in the way, and its file", err)
			}
			if err := c.Start(t.Context(), bare("b", "run")); err != nil {
				t.Errorf("Start() of another stack = %v", err)
			}
			await(t, "the place is removed", func() bool {
				_, err := os.Stat(filepath.Join(dir, "removals", removalOf(tt.file(p))))
				return os.IsNotExist(err)
			})
			await(t, "the stack has its next run", func() bool {
				r, err := c.Current("a")
				if r == nil && err == nil {
					err = c.Start(t.Context(), bare("a", "next"))
				}
				return r != nil && err == nil && r.ID == "next"
			})
			s.close(c)
		})
	}
}

// A file about no place that is there stays, under a name that stands in the way of nothing.
func TestARemovalOfNoPlaceThatCannotBeRead(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	file := write(t, "{", dir, "removals", removalOf(remote.Place{Namespace: "test", Name: "gone", UID: "uid"}))
	config := s.config(dir)
	var now atomic.Int64
	config.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	c, err := remote.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	c.ReadAgain()
	if _, err := os.Stat(file); err != nil {
		t.Errorf("a place may still come: %v", err)
	}
	now.Store(60)
	c.ReadAgain()
	if data, err := os.ReadFile(file + ".unreadable"); err != nil || string(data) != "{" {
		t.Errorf("the file is %q, %v, want it set aside", data, err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is there twice: %v", err)
	}
}

package controller

import (
	"bytes"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// twoKeys returns one store with an old key, with a new one, and with both.
func twoKeys(t *testing.T) (old, lost, both blob.Store) {
	t.Helper()
	files := blobtest.Files(t, 1<<20)
	keys := make([]blob.Key, 2)
	for i := range keys {
		var err error
		if keys[i], err = blob.NewKey(bytes.Repeat([]byte{byte(i)}, 32)); err != nil {
			t.Fatal(err)
		}
	}
	return blob.Seal(files, keys[0]), blob.Seal(files, keys[1]), blob.Seal(files, keys[1], keys[0])
}

// Decisions whose key is lost stay as they are. Newer ones are added to them once the
// key is back.
func TestDecisionsWhoseKeyIsLost(t *testing.T) {
	old, lost, both := twoKeys(t)
	if err := record.Decisions("uid").Write(t.Context(), old, []stack.Decided{{Phase: "Ready", Rule: "former"}}); err != nil {
		t.Fatal(err)
	}
	p, seen := &pass{id: "uid"}, timeline{}
	for i, blobs := range []blob.Store{lost, lost, both} {
		c := takeApart(&Stacks{Blobs: blobs})
		d := stack.Decision{Action: stack.Wait{}, Reason: "Ready", Rule: []string{"first", "second", "third"}[i]}
		if err := c.noteDecision(t.Context(), &seen, p, d); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := record.Decisions("uid").Read(t.Context(), both)
	rules := ""
	for _, d := range kept {
		rules += d.Rule + " "
	}
	if want := "former first second third "; err != nil || rules != want {
		t.Errorf("the rules are %q, %v, want %q", rules, err, want)
	}
}

// What else does not open under a lost key blocks no run: the reports of former runs go
// as the oldest, and drift counts as not checked.
func TestRecordsWhoseKeyIsLostBlockNoRun(t *testing.T) {
	old, lost, _ := twoKeys(t)
	if err := record.At[runner.Report](record.Run("uid", "apply-0", record.ReportFile)).Write(t.Context(), old, runner.Report{}); err != nil {
		t.Fatal(err)
	}
	if err := record.Checked("uid").Write(t.Context(), old, record.Check{At: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	c := takeApart(&Stacks{Blobs: lost})
	if err := c.records.DropOldRuns(t.Context(), "uid", runsKept); err != nil {
		t.Error(err)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	e := &entry{id: "uid"}
	if err := c.noteDriftCheck(t.Context(), &pass{entry: e}, at, false, 0); err != nil || !e.checks.At.Equal(at) {
		t.Errorf("the drift check is %+v, %v", e.checks, err)
	}
}

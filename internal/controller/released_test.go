package controller

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The files in testdata/released are records and statuses as the release before
// this one wrote them. Their content must survive that this release reads them
// and writes them again.
func TestReleasedRecordsSurvive(t *testing.T) {
	for pattern, tt := range map[string]struct {
		into    any
		dropped []string // what this release finds out by itself
	}{
		"status-*.json":  {into: &stack.Status{}},
		"report.json":    {into: &runner.Report{}},
		"decisions.json": {into: &[]stack.Decided{}, dropped: []string{".6.phase", ".7.phase", ".8.phase"}}, // read under its new name, see below
		"snapshot.json":  {into: &snapshot{}, dropped: []string{".Job.Engine.Path", ".Job.Box.Mirror", ".Job.Box.Writable"}},
	} {
		files, err := filepath.Glob(filepath.Join("testdata/released", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v, want files", pattern, files, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				into := reflect.New(reflect.TypeOf(tt.into).Elem()).Interface()
				was := readReleased(t, filepath.Base(file), into)
				again, err := json.Marshal(into)
				if err != nil {
					t.Fatal(err)
				}
				var is any
				if err := json.Unmarshal(again, &is); err != nil {
					t.Fatal(err)
				}
				for _, path := range lostIn("", was, is) {
					if !slices.Contains(tt.dropped, path) {
						t.Errorf("%s is lost", path)
					}
				}
			})
		}
	}
}

// A decision about a situation that has another name now is read under the new one.
func TestReleasedDecisionsHaveNewNames(t *testing.T) {
	var all []stack.Decided
	readReleased(t, "decisions.json", &all)
	if got := all[len(all)-1].Phase; got != string(stack.BreakGlassSession) {
		t.Errorf("the newest decision is %s, want %s", got, stack.BreakGlassSession)
	}
}

// The release before this one takes the contents of a job for bytes. A snapshot
// has none of them, so that a destroy works after a downgrade, too.
func TestSnapshotIsReadByTheReleaseBefore(t *testing.T) {
	kept, err := json.Marshal(snapshot{Job: runner.Job{Stack: "uid"}})
	if err != nil {
		t.Fatal(err)
	}
	var before struct {
		Job struct {
			Stack                 string
			State, Plan, LockFile []byte
		}
	}
	if err := json.Unmarshal(kept, &before); err != nil || before.Job.Stack != "uid" {
		t.Errorf("the release before reads %+v, %v from %s", before, err, kept)
	}
}

// readReleased decodes a file of the release before, and returns all that it holds.
func readReleased(t *testing.T, name string, into any) (all any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/released", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{&all, into} {
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
	}
	return all
}

// lostIn lists the paths at which was holds something that is does not hold. What
// is empty may be absent.
func lostIn(path string, was, is any) (lost []string) {
	switch was := was.(type) {
	case map[string]any:
		at, _ := is.(map[string]any)
		for k, v := range was {
			lost = append(lost, lostIn(path+"."+k, v, at[k])...)
		}
	case []any:
		at, _ := is.([]any)
		if len(was) > 0 && len(at) != len(was) {
			return []string{path}
		}
		for i, v := range was {
			lost = append(lost, lostIn(fmt.Sprint(path, ".", i), v, at[i])...)
		}
	default:
		if was != nil && !reflect.ValueOf(was).IsZero() && was != is {
			lost = []string{path}
		}
	}
	return lost
}

package runner_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Of a state that is kept elsewhere the run leaves what it says that exists.
func TestForeignInventory(t *testing.T) {
	f := &foreign{}
	s := abroad(t, f)
	s.Job.Options.Inventory = true
	if left := leave(t, s, s.Start(stack.PlanRun)); string(left) != `{"items":[]}` {
		t.Errorf("before anything exists the inventory is %s", left)
	}
	planned := s.Must(stack.PlanRun)
	var got plan.Inventory
	if err := json.Unmarshal(leave(t, s, s.Start(stack.ApplyRun, runnertest.Saved(planned))), &got); err != nil {
		t.Fatal(err)
	}
	var state struct {
		Resources []struct {
			Instances []struct{ Attributes struct{ ID string } }
		}
	}
	if err := json.Unmarshal(f.state, &state); err != nil {
		t.Fatal(err)
	}
	want := plan.Inventory{Items: []plan.Item{{Name: "a", Type: "terraform_data", ID: state.Resources[0].Instances[0].Attributes.ID}}}
	if diff := cmp.Diff(want, got); diff != "" || want.Items[0].ID == "" {
		t.Errorf("the inventory (-want +got):\n%s", diff)
	}
	if d := s.Must(stack.CheckRun); len(d.Steps) != 1 {
		t.Errorf("a quiet check took %d steps", len(d.Steps))
	}
}

// An apply without an inventory is not a failure.
func TestApplySucceedsWithoutItsInventory(t *testing.T) {
	f := &foreign{}
	s := abroad(t, f)
	s.Job.Options.Inventory = true
	planned := s.Must(stack.PlanRun)
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && f.state != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		f.ServeHTTP(w, r)
	}))
	defer silent.Close()
	s.Job.Options.Backend = []string{"address=" + silent.URL, "lock_address=" + silent.URL, "unlock_address=" + silent.URL, "retry_max=0"}
	id := s.Start(stack.ApplyRun, runnertest.Saved(planned))
	s.Await()
	if left := s.Read(id, runner.FileInventory); left != nil {
		t.Errorf("the inventory of a state that cannot be read is %s", left)
	}
	if d := s.Finish(id); d.Outcome != stack.Succeeded || !runnertest.Has("There is no inventory of this run", d.Log) {
		t.Errorf("the apply ended %s: %s\n%s", d.Outcome, d.Message, d.Log)
	}
}

// leave waits for the end of a run and returns the inventory that it left.
func leave(t *testing.T, s *runnertest.Stack, id string) []byte {
	t.Helper()
	s.Await()
	left := s.Read(id, runner.FileInventory)
	if d := s.Finish(id); d.Outcome != stack.Succeeded {
		t.Fatalf("%s ended %s: %s\n%s", id, d.Outcome, d.Message, d.Log)
	}
	return left
}

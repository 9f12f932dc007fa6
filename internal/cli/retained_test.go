package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// left writes down what a stack that is gone left.
func (e estate) left(t *testing.T, name, uid string, r kube.Retained) {
	t.Helper()
	r.Stack, r.UID, r.Origin = e.cluster.Namespace+"/"+name, uid, e.origin(t)
	if r.At.IsZero() {
		r.At = e.ago(2 * time.Hour)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	e.records[record.Retained(uid, record.RetainedFile)] = string(raw)
	if r.State != nil {
		e.records[record.Retained(uid, record.RetainedStateFile)] = string(aState(3, "a", "b"))
	}
}

// origin is that of stacks that are in the namespace of the test.
func (e estate) origin(t *testing.T) kube.Origin {
	t.Helper()
	n, err := kube.FindNamespace(t.Context(), e.cluster.Client, e.cluster.Namespace)
	if err != nil || n.UID == "" {
		t.Fatalf("the namespace of the test is %+v, %v", n, err)
	}
	return kube.Origin{NamespaceUID: n.UID}
}

// lastRun is the record of the last run of a deleted stack.
type lastRun struct {
	runner.Report
	kube.Origin
}

func TestRetained(t *testing.T) {
	e := newEstate(t)
	if got := e.run(t, "retained"); got.code != 0 || !strings.Contains(got.out, "No deleted stack has retained resources") {
		t.Errorf("without a record it ends with %d and says %s%s", got.code, got.out, got.err)
	}
	ref := &kube.StateRef{Namespace: e.cluster.Namespace, Workspace: "default", Suffix: "old"}
	e.left(t, "old", "uid-1", kube.Retained{Why: "terrier.dev/deletion is retain", State: ref, Resources: []string{"t.a", "t.b"},
		Untracked: &stack.Untracked{Objects: []stack.UntrackedResource{{Address: "t.c", ID: "c-1", Finished: true}, {Address: "t.d"}}}})
	e.left(t, "twice", "uid-2", kube.Retained{Why: "the object was removed"})
	e.left(t, "twice", "uid-3", kube.Retained{Why: "the object was removed", At: e.ago(time.Hour)})
	e.left(t, "network", string(e.object(t).UID), kube.Retained{Why: "a copy was put back"})
	e.records["stacks/uid-1/runs/apply-1/log.txt"], e.records["stacks/uid-10/state.json"] = "of the one that goes", "of another one"
	gone := func(file string) string { return record.Gone("", e.cluster.Namespace, "old", "uid-1", file) }
	last, err := json.Marshal(lastRun{runner.Report{ID: "destroy-1", Phase: runner.Done, Outcome: stack.Succeeded, Gone: e.ago(2 * time.Hour)}, e.origin(t)})
	if err != nil {
		t.Fatal(err)
	}
	e.records[gone(record.ReportFile)], e.records[gone(runner.FileLog)] = string(last), "the last words\n"
	e.dialogue(t, []line{
		{"retained", 0, []string{"old", "secret/tfstate-default-old", "terrier.dev/deletion is retain", "not stored here"}, "hunter22"},
		{"retained show old", 0, []string{"t.a", "t.c  exists, ID c-1", "t.d  may exist", "terrier.dev/adopt-state=true", "terrier retained forget old"}, "hunter22"},
		{"retained show old -o json", 0, []string{`"uid": "uid-1"`, `"secret": "tfstate-default-old"`, `"kept": true`}, "hunter22"},
		{"retained show nothing", 4, []string{"there is no record", "If the namespace was deleted and created again"}, ""},
		{"retained show twice", 2, []string{"2 deleted stacks", "--uid"}, ""},
		{"retained show twice --uid uid-3", 0, []string{"60m ago"}, ""},
		{"retained state old", 0, []string{"hunter22"}, ""},
		{"retained state twice --uid uid-2", 4, []string{"no copy"}, ""},
		{"logs old", 0, []string{"the last words", e.cluster.Namespace + "/old is gone since ", "(120m ago). Its last run, destroy-1, ended Succeeded"}, ""},
		{"runs old", 0, []string{"destroy-1", "is gone since"}, ""},
		{"logs network", 4, nil, "is gone since"},
		{"retained forget network --yes", 5, []string{"exists again"}, ""},
		{"retained forget old", 2, []string{"which has 2 retained resources and was deleted 120m ago?", "--yes"}, ""},
		{"retained show old", 0, []string{"t.a"}, ""},
		{"retained forget old --yes", 0, []string{"Deleted the record", "kubectl delete secret tfstate-default-old"}, ""},
		{"retained forget old --yes", 4, []string{"there is no record"}, ""},
		{"logs old", 4, []string{"old does not exist"}, "is gone since"},
		{"retained -o json", 0, []string{"uid-2", "uid-3"}, "uid-1"},
	})
	for key, want := range map[string]bool{
		"stacks/uid-1/runs/apply-1/log.txt":                false,
		record.Retained("uid-1", record.RetainedStateFile): false,
		gone(runner.FileLog):                               false,
		"stacks/uid-10/state.json":                         true,
		record.Retained("uid-2", record.RetainedFile):      true,
	} {
		if _, has := e.records[key]; has != want {
			t.Errorf("the record %s is there: %v, want %v", key, has, want)
		}
	}
}

// What the runs of a stack forgot is listed while the stack exists and after it is
// deleted. To delete the list of one that exists leaves its other records alone.
func TestRetainedListsForgottenResources(t *testing.T) {
	e := newEstate(t)
	forgotten := []stack.ForgottenResource{{Address: "t.a", Type: "t", ID: "a-1", Run: "apply-1", At: e.ago(time.Hour)}, {Address: "t.b", Type: "t", Run: "apply-1", At: e.ago(time.Hour), Unsure: true}}
	uid := string(e.object(t).UID)
	raw, err := json.Marshal(kube.Forgotten{Stack: e.cluster.Namespace + "/network", UID: uid, Resources: forgotten})
	if err != nil {
		t.Fatal(err)
	}
	live := record.Retained(uid, record.ForgottenFile)
	e.records[live] = string(raw)
	e.left(t, "old", "uid-1", kube.Retained{Why: "its runs forgot the resources", Forgotten: forgotten})
	e.records[record.Retained("uid-1", record.ForgottenFile)] = "{}"
	records := len(e.records)
	e.dialogue(t, []line{
		{"retained", 0, []string{"network", "old", "not in a state", "destroy = false"}, ""},
		{"retained show network", 0, []string{"t.a  ID a-1, forgotten by apply-1 60m ago", "t.b  ID not known, may still be in the state", "import {"}, "Expires"},
		{"retained show old", 0, []string{"Expires", "t.a  ID a-1", "import {"}, "adopt-state"},
		{"retained forget network", 2, []string{"which has 2 retained resources and still exists?"}, ""},
		{"retained forget network --yes", 0, []string{"Deleted the record"}, ""},
	})
	if _, has := e.records[live]; has || len(e.records) != records-1 {
		t.Errorf("of %d records %d are left, want all but the list of forgotten resources", records, len(e.records))
	}
	e.dialogue(t, []line{{"retained forget old --yes", 0, []string{"Deleted the record"}, ""}, {"retained show old", 4, []string{"there is no record"}, ""}})
	if _, has := e.records[record.Retained("uid-1", record.ForgottenFile)]; has {
		t.Error("the list of a deleted stack is left")
	}
}

// Records of a namespace are for those who have rights there, and a name leads to
// no other stack's.
func TestRetainedIsForgottenByBothOfItsNames(t *testing.T) {
	e := newEstate(t)
	e.left(t, "old", "uid-1", kube.Retained{Why: "w"})
	k, _, err := client.Connection{Path: e.cluster.Kubeconfig, Now: e.Now}.Retained(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key, uid := range map[query.Key]string{
		{Namespace: e.cluster.Namespace, Name: "other"}: "uid-1",
		{Namespace: "elsewhere", Name: "old"}:           "uid-1",
		{Namespace: e.cluster.Namespace, Name: "old"}:   "uid-2",
	} {
		if err := k.Forget(t.Context(), key, uid); err == nil || e.records[record.Retained("uid-1", record.RetainedFile)] == "" {
			t.Errorf("Forget(%s, %s) = %v, want it to find nothing", key, uid, err)
		}
	}
}

// A state that a user gave up is listed with the place where it was, while the stack exists
// and after it is deleted.
func TestRetainedListsStatesThatWereGivenUp(t *testing.T) {
	e := newEstate(t)
	bucket := stack.GivenUp{LastState: stack.LastState{Place: "d", In: `the backend aws (bucket "old", key "network")`, Lineage: "l", Serial: 7, Resources: 5}, At: e.ago(time.Hour), Why: "the old account was closed", Now: `the backend aws (bucket "new", key "network")`, Token: "missing-1"}
	uid := string(e.object(t).UID)
	raw, err := json.Marshal(kube.Forgotten{Stack: e.cluster.Namespace + "/network", UID: uid, GivenUp: []stack.GivenUp{bucket}})
	if err != nil {
		t.Fatal(err)
	}
	e.records[record.Retained(uid, record.ForgottenFile)] = string(raw)
	sealed := bucket
	sealed.Resources, sealed.Uncounted = 0, true
	e.left(t, "old", "uid-1", kube.Retained{Why: "a user gave up its former state", GivenUp: []stack.GivenUp{sealed}})
	e.dialogue(t, []line{
		{"retained", 0, []string{"network", "60m", "5", `the backend aws (bucket "old", key "network")`, "a user gave up its state: the old account was closed", "unknown"}, "not stored here"},
		{"retained show network", 0, []string{"Given up", "States that were given up", "5 resources, serial 7 of the lineage l, in the backend aws", `given up 60m ago for the backend aws (bucket "new", key "network"): the old account was closed`, "may still exist"}, "none known"},
		{"retained show old", 0, []string{"resources that cannot be counted", "Deleted"}, ""},
		{"retained forget network --yes", 0, []string{"Deleted the record"}, ""},
		{"retained", 0, []string{"old"}, "the old account was closed\n"},
	})
}

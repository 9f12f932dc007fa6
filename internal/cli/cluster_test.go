package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/web"
)

// kept are records in memory; no run goes on.
type kept map[string]string

func (k kept) Get(_ context.Context, key string) ([]byte, error) {
	if content, ok := k[key]; ok {
		return []byte(content), nil
	}
	return nil, fault.New(fault.Missing, "BlobMissing", errors.New(key))
}

func (k kept) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	for key := range k {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (k kept) Delete(_ context.Context, key string) error {
	delete(k, key)
	return nil
}

func (kept) Current(string) (*query.Report, error) { return nil, nil }
func (kept) Open(_, run, _ string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Missing, "FileMissing", errors.New(run))
}

// estate is a cluster with one stack in it and a server that keeps its records.
type estate struct {
	Env
	cluster *testkit.Cluster
	records kept
}

const digest = "sha256:6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e"

func newEstate(t *testing.T) estate {
	t.Helper()
	e := estate{Env: env(t), cluster: testkit.Kube(t, v1alpha2.AddToScheme), records: kept{}}
	e.Environ = []string{"KUBECONFIG=" + e.cluster.Kubeconfig}
	e.cluster.Apply(t, strings.Replace(manifest, ", namespace: apps", "", 1))
	now := e.object(t).CreationTimestamp.Add(time.Hour)
	e.Now = func() time.Time { return now }
	e.serve(t)
	return e
}

// serve starts the HTTP API and writes down in the cluster where it is.
func (e estate) serve(t *testing.T) {
	t.Helper()
	auth, err := access.NewKubeAuth(e.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	kube, err := access.NewClient(e.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	records := query.NewBlobs(e.records, e.records, time.Millisecond)
	people, err := command.NewPeople(e.cluster.Config, kinds.All(), records, e.Now)
	if err != nil {
		t.Fatal(err)
	}
	url, ca := listen(t, web.Options{
		Kinds: kinds.All(), Stacks: command.New(kube, kinds.All(), records, e.Now), Retained: command.NewRetained(e.records, kube, kinds.All()),
		Auth: auth, People: people.As, Hosts: []string{"127.0.0.1"},
	})
	data, err := json.Marshal(map[string]string{access.ServerURLKey: url, access.ServerCAKey: ca})
	if err != nil {
		t.Fatal(err)
	}
	e.cluster.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+access.ServerNamespace+"}\n---\n"+
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+access.ServerConfigMap+", namespace: "+access.ServerNamespace+"}\ndata: "+string(data)+"\n")
}

// listen serves o, and returns the address and the certificate authority.
func listen(t *testing.T, o web.Options) (url, ca string) {
	t.Helper()
	h, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	return srv.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
}

func (e estate) object(t *testing.T) *v1alpha2.Terraform {
	t.Helper()
	return e.cluster.Stack(t, "network")
}

func (e estate) ago(d time.Duration) time.Time { return e.Now().Add(-d) }

// planned makes a plan wait, with its run and its document in the records.
func (e estate) planned(t *testing.T) {
	t.Helper()
	moment := e.ago(time.Minute).UTC().Format(time.RFC3339)
	status, err := json.Marshal(map[string]any{
		"plan":                map[string]any{"pending": "plan-main-b8e362c206"},
		"lastPlannedRevision": "main@sha1:b8e362c206ffffffffffffffffffffffffffffff",
		"conditions": []any{map[string]any{"type": "Ready", "status": "Unknown", "reason": "TerraformPlannedWithChanges", "lastTransitionTime": moment,
			"message": "Plan generated: set approvePlan: \"plan-main-b8e362c206\" to approve this plan."}},
		"terrier": map[string]any{
			"phase": "AwaitingApproval", "rule": "a plan waits for approval", "since": moment, "isolation": "3", "waitingFor": "an approval",
			"memory": stack.Status{Plans: stack.Plans{Pending: &stack.Plan{
				Name: "plan-main-b8e362c206", Digest: digest, Run: "plan-1", At: e.ago(time.Minute),
				PlanInputs: stack.PlanInputs{Revision: "main@sha1:b8e362c206ffffffffffffffffffffffffffffff"},
				Changes:    stack.Changes{Add: 2, Destroy: 1},
			}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := e.object(t)
	if err := json.Unmarshal(status, &o.Status); err != nil {
		t.Fatal(err)
	}
	if err := e.cluster.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../plan/testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	uid := string(o.UID)
	report, err := json.Marshal(query.Report{ID: "plan-1", Kind: stack.PlanRun, Phase: runner.Done, Outcome: stack.Succeeded,
		Started: e.ago(2 * time.Minute), Finished: e.ago(time.Minute), Changes: stack.Changes{Add: 2, Destroy: 1}})
	if err != nil {
		t.Fatal(err)
	}
	e.records[record.Plan(uid, digest, runner.FilePlanDoc)] = string(document)
	e.records[record.Run(uid, "plan-1", record.ReportFile)] = string(report)
	e.records[record.Run(uid, "plan-1", runner.FileLog)] = "2026-03-14T15:09:26.535Z Refreshing…\n2026-03-14T15:09:27.000Z \x1b[2Jevil\rmore\n"
}

// remember writes what the controller knows of the stack into its status.
func (e estate) remember(t *testing.T, known stack.Status) {
	t.Helper()
	raw, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	o := e.object(t)
	if o.Status.Terrier == nil {
		o.Status.Terrier = &v1alpha2.TerrierStatus{}
	}
	o.Status.Terrier.Memory = &apiextensionsv1.JSON{Raw: raw}
	if err := e.cluster.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// fixed takes out what differs from one test run to the next.
func (e estate) fixed(t *testing.T, s string) string {
	t.Helper()
	o := e.object(t)
	created, planned := o.CreationTimestamp.UTC().Format(time.RFC3339), e.ago(time.Minute).UTC().Format(time.RFC3339)
	for from, to := range map[string]string{e.cluster.Namespace: "apps", string(o.UID): "UID", created: "CREATED", planned: "PLANNED"} {
		s = strings.ReplaceAll(s, from, to)
	}
	return s
}

// What a person sees who looks at a stack whose plan waits.
func TestLooking(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	for name, args := range map[string][]string{
		"get":           {"get"},
		"get-wide":      {"get", "network", "-o", "wide"},
		"get-name":      {"get", "-o", "name"},
		"explain":       {"explain", "network", "--rules"},
		"plan":          {"plan", "network"},
		"runs":          {"runs", "network"},
		"logs":          {"logs", "network"},
		"logs-times":    {"logs", "network", "--timestamps"},
		"describe":      {"describe", "network"},
		"get-none":      {"get", "-l", "team=none"},
		"plan-wide":     {"plan", "network", "-o", "wide"},
		"outputs-none":  {"outputs", "network"},
		"plan-no-such":  {"plan", "network", "--digest", "sha256:" + strings.Repeat("0", 64)},
		"logs-no-such":  {"logs", "network", "--run", "nothing"},
		"get-no-such":   {"get", "nothing"},
		"approve-other": {"approve", "network", "plan-main-0000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.run(t, args...)
			text := got.out
			if got.err != "" {
				text += "--- stderr\n" + got.err
			}
			golden(t, filepath.Join("testdata", name+".txt"), e.fixed(t, text))
		})
	}
}

func TestPlanForPrograms(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	got := e.run(t, "plan", "network", "-o", "json", "--exit-code")
	if got.code != 2 {
		t.Errorf("exit %d, want 2 since a plan waits: %s", got.code, got.err)
	}
	var doc struct {
		Version string `json:"format_version"`
	}
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil || doc.Version == "" {
		t.Errorf("prints %.80q, %v; want the document", got.out, err)
	}
}

// Commands that destroy, or that cannot be undone, ask on a terminal and refuse without
// one. A plan that destroys nothing is approved in a script, as ever.
func TestConfirmations(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	approved := func() string { return e.object(t).Spec.ApprovePlan }
	e.Terminal, e.Stdin = true, strings.NewReader("n\n")
	if got := e.run(t, "approve", "network"); got.code != 0 || approved() != "" || !strings.Contains(got.err, "Approve plan-main-b8e362c206 of ") {
		t.Errorf("a no on a terminal: exit %d, %q, approved is %q", got.code, got.err, approved())
	}
	e.Terminal, e.Stdin = false, strings.NewReader("y\n")
	e.withStates(t, aState(3, "a")) // which no run has seen
	for _, args := range [][]string{{"state", "accept", "network"}, {"break-glass", "network", "--", "state", "rm", "a.b"}} {
		if got := e.run(t, args...); got.code != 2 || !strings.Contains(got.err, "There is no terminal to ask this on, so nothing was changed: use --yes") {
			t.Errorf("terrier %v without a terminal: exit %d, %q; want a refusal that names --yes", args, got.code, got.err)
		}
	}
	if got := e.run(t, "approve", "network"); got.code != 2 || approved() != "" || !strings.Contains(got.err, "which destroys 1 resource? There is no terminal") {
		t.Errorf("a destroy without a terminal: exit %d, %q, approved is %q", got.code, got.err, approved())
	}
	if got := e.run(t, "approve", "network", "--yes"); got.code != 0 || approved() != "plan-main-b8e362c206" {
		t.Errorf("a destroy with --yes: exit %d, %q, approved is %q", got.code, got.err, approved())
	}
	if got := e.run(t, "reject", "network"); got.code != 0 || approved() != "" {
		t.Fatalf("rejecting asks nothing: exit %d, %q", got.code, got.err)
	}
	e.remember(t, stack.Status{Plans: stack.Plans{Pending: &stack.Plan{Name: "plan-main-b8e362c206", Digest: digest, Changes: stack.Changes{Add: 2}}}})
	if got := e.run(t, "approve", "network"); got.code != 0 || approved() != "plan-main-b8e362c206" {
		t.Errorf("a plan that destroys nothing, without a terminal: exit %d, %q, approved is %q", got.code, got.err, approved())
	}
}

func TestDeciding(t *testing.T) {
	e := newEstate(t)
	if got := e.run(t, "approve", "network"); got.code != 4 {
		t.Errorf("approving nothing is exit %d, want 4: %s", got.code, got.err)
	}
	e.planned(t)
	if got := e.run(t, "approve", "network", "plan-main-0000000000"); got.code != 5 || e.object(t).Spec.ApprovePlan != "" {
		t.Errorf("approving another plan is exit %d and approvePlan %q, want 5 and nothing", got.code, e.object(t).Spec.ApprovePlan)
	}
	got := e.run(t, "approve", "network", "plan-main-b8e362c206")
	if got.code != 0 || e.object(t).Spec.ApprovePlan != "plan-main-b8e362c206" || !strings.Contains(got.err, "Plan:") {
		t.Errorf("exit %d, approvePlan %q, showing %q; want the plan shown and approved", got.code, e.object(t).Spec.ApprovePlan, got.err)
	}
	if got := e.run(t, "reject", "network"); got.code != 0 || e.object(t).Spec.ApprovePlan != "" {
		t.Errorf("exit %d, approvePlan %q; want the approval taken back", got.code, e.object(t).Spec.ApprovePlan)
	}
}

// An approval does not depend on the server that keeps the document.
func TestApprovingWithoutRecords(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	got := e.run(t, "approve", "network", "--yes", "--server", "https://127.0.0.1:1")
	if got.code != 0 || !strings.Contains(got.err, "2 to add, 0 to change, 1 to destroy") || e.object(t).Spec.ApprovePlan == "" {
		t.Errorf("exit %d, %q; want the counts shown and the plan approved", got.code, got.err)
	}
}

func TestApprovingInAFile(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	before := "# the network\n" + strings.Replace(manifest, ", namespace: apps", "", 1)
	path := filepath.Join(e.Dir, "network.yaml")
	if err := os.WriteFile(path, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"now", "already"} {
		if got := e.run(t, "approve", "network", "-f", "network.yaml"); got.code != 0 || !strings.Contains(got.out, says) {
			t.Fatalf("exit %d, %q %q; want that it approves %s", got.code, got.out, got.err, says)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(before, "spec:\n", "spec:\n  approvePlan: plan-main-b8e362c206\n", 1)
	if !bytes.Equal(after, []byte(want)) || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %s with mode %v, want %s", after, info.Mode(), want)
	}
	if got := e.object(t).Spec.ApprovePlan; got != "" {
		t.Errorf("the object is approved as well: %q", got)
	}
}

func TestOperating(t *testing.T) {
	e := newEstate(t)
	for _, args := range [][]string{{"suspend", "network"}, {"resume", "network"}, {"suspend", "--all", "-n", e.cluster.Namespace}} {
		want := args[0] == "suspend"
		if got := e.run(t, args...); got.code != 0 || e.object(t).Spec.Suspend != want {
			t.Errorf("%q: exit %d %s, suspend %v; want %v", args, got.code, got.err, e.object(t).Spec.Suspend, want)
		}
	}
	if got := e.run(t, "replan", "network"); got.code != 2 || !strings.Contains(got.err, "terrier resume") {
		t.Errorf("replanning a suspended stack is exit %d %q, want 2 and what to do", got.code, got.err)
	}
	if got := e.run(t, "resume", "network"); got.code != 0 {
		t.Fatal(got.err)
	}
	if got := e.run(t, "replan", "network", "--wait", "--timeout", "10ms"); got.code != 6 || !strings.Contains(got.err, "terrier explain") {
		t.Errorf("an answer that does not come is exit %d %q, want 6 and what to do", got.code, got.err)
	}
	if e.object(t).Annotations[infra.RequestedAt] == "" {
		t.Error("nobody asked for a new plan")
	}
}

// After a request whose plan failed, the plan that was pending before is not offered
// as its answer.
func TestAFailedPlanIsNoAnswer(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	e.remember(t, stack.Status{
		Plans:     stack.Plans{Pending: &stack.Plan{Name: "plan-main-b8e362c206", Digest: digest, Changes: stack.Changes{Add: 2}}},
		Failure:   stack.Failure{Failures: 1, FailedKind: stack.PlanRun, FailedStep: "plan", FailedWith: "no such region"},
		Resources: stack.Resources{Untracked: &stack.Untracked{Run: "apply-1", Objects: []stack.UntrackedResource{{Address: "t.a", ID: "i-1", Finished: true}}}},
	})
	o := e.object(t)
	o.Status.Terrier.Phase, o.Status.LastHandledReconcileAt = string(stack.RetryLater), e.Now().Add(time.Hour).Format(time.RFC3339Nano)
	o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "PlanFailed", Message: "no such region", LastTransitionTime: metav1.Now()}}
	if err := e.cluster.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	e.dialogue(t, []line{
		{args: "replan network --wait", code: 2, says: []string{"has no new plan: RetryLater: no such region"}, never: "plan-main"},
		{args: "repair network --yes", code: 2, says: []string{"has no new plan: RetryLater: no such region"}, never: "Applying"},
	})
}

// line is a command and what it answers.
type line struct {
	args  string
	code  int
	says  []string // in the output, or in what is complained
	never string
}

// dialogue runs commands one after another.
func (e estate) dialogue(t *testing.T, lines []line) {
	t.Helper()
	for _, l := range lines {
		got := e.run(t, strings.Fields(l.args)...)
		text := got.out + got.err
		if got.code != l.code {
			t.Errorf("terrier %s ends with %d and says %s", l.args, got.code, text)
		}
		for _, want := range l.says {
			if !strings.Contains(text, want) {
				t.Errorf("terrier %s says %q, want %q in it", l.args, text, want)
			}
		}
		if l.never != "" && strings.Contains(text, l.never) {
			t.Errorf("terrier %s says %q, which holds %q", l.args, text, l.never)
		}
	}
}

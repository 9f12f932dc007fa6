// Package recordstest is what every implementation of query.Records must do,
// whether it reads where records are kept or asks a server for them.
//
// Start reading at Run.
package recordstest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Stack is the stack that the records are about.
var Stack = query.StackID{Key: query.Key{Namespace: "apps", Name: "net"}, UID: "0d9f7a3c-uid"}

// Gone is a stack that was deleted: its records are known by its key and its namespace alone.
var Gone = query.StackID{Key: query.Key{Namespace: "apps", Name: "gone"}, In: kube.Namespace{UID: "apps-uid", Created: start}}

// Digest is that of its one plan, and Document what that says.
const (
	Digest   = "sha256:6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e6d9a1f0e"
	Document = `{"format_version":"1.2","resource_changes":[]}`
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func report(run string, started int, phase runner.Phase) runner.Report {
	r := runner.Report{ID: run, Stack: Stack.UID, Name: Stack.String(), Kind: stack.PlanRun, Phase: phase,
		Started: start.Add(time.Duration(started) * time.Minute)}
	if phase == runner.Done {
		r.Outcome, r.Changes = stack.Succeeded, stack.Changes{Add: 1}
	}
	return r
}

// Run checks an implementation. subject makes it from the records as they are
// kept: two runs that have ended, one that goes on, one plan.
func Run(t *testing.T, subject func(t *testing.T, kept *query.Blobs) query.Records) {
	setUp := func(t *testing.T) (*world, query.Records) {
		w := newWorld()
		w.keep(report("plan-1", 1, runner.Done), "one\n")
		w.keep(report("apply-2", 2, runner.Done), "two\n")
		w.put(record.Plan(Stack.UID, Digest, runner.FilePlanDoc), Document)
		w.begin(report("plan-3", 3, runner.Planning))
		w.write("three\n")
		kept := query.NewBlobs(w, w, time.Millisecond)
		kept.Cipher = &encryption.Cipher{Keys: func(_ context.Context, place, _ string) ([]encryption.Key, error) {
			key := sha256.Sum256([]byte(place))
			return []encryption.Key{{ID: "one", Bytes: key[:]}}, nil
		}}
		kept.InGit = &repository{}
		return w, subject(t, kept)
	}
	for name, check := range map[string]func(*testing.T, *world, query.Records){
		"runs are newest first, each once":               runsNewestFirst,
		"a run is read from where it is":                 runIsReadFromWhereItIs,
		"a log is read as far as it goes":                logIsReadAsFarAsItGoes,
		"a log is followed until its run has ended":      logIsFollowed,
		"a log is followed before anything is written":   logIsFollowedFromTheStart,
		"a log is read with the times of its lines":      logWithTimes,
		"a quiet look is read by both its names":         quietCheck,
		"whoever stops following is let go":              followingStops,
		"a plan is read by its digest":                   planByDigest,
		"what a stack uses is read":                      whatAStackUses,
		"what policies found is read":                    whatPoliciesFound,
		"plans that were applied are read":               plansThatWereApplied,
		"what is not there is missing":                   missing,
		"states of the past are read by their names":     statesByName,
		"a state beside its Secret is kept and read":     stateBesideItsSecret,
		"a state is encrypted and decrypted":             encryptedState,
		"a state in git is read and replaced":            stateInGit,
		"names that lead elsewhere are invalid":          namesThatLeadElsewhere,
		"of a deleted stack the last run is read":        lastRunOfAGoneStack,
		"a stack that was never run has an empty list":   nothingAtAll,
		"a failure of the store is not an absent record": brokenStore,
	} {
		t.Run(name, func(t *testing.T) {
			w, r := setUp(t)
			check(t, w, r)
		})
	}
}

func runsNewestFirst(t *testing.T, w *world, r query.Records) {
	w.keep(report("plan-3", 3, runner.Planning), "") // kept already, and not forgotten by the runner yet
	runs, err := r.Runs(t.Context(), Stack)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, run := range runs {
		ids = append(ids, run.ID)
	}
	if diff := cmp.Diff(ids, []string{"plan-3", "apply-2", "plan-1"}); diff != "" {
		t.Errorf("Runs() (-got +want):\n%s", diff)
	}
}

func whatAStackUses(t *testing.T, w *world, r query.Records) {
	if got, err := r.Uses(t.Context(), Stack); fault.Of(err) != fault.Missing || fault.Reason(err, "") != query.ReasonNoUses {
		t.Errorf("before a run has found out: Uses() = %+v, %v, want Missing", got, err)
	}
	want := usage.Record{At: start, Run: "plan-1", Revision: "main@sha1:1", Usage: usage.Usage{
		Modules:   []usage.Module{{Path: "module.a", Source: "./a", Location: usage.Location{Kind: usage.Local, Directory: "./a"}, Since: start}},
		Providers: []usage.Provider{{Source: "registry.opentofu.org/hashicorp/aws", Version: "6.0.0", Hashes: []string{"h1:x"}, Since: start}},
	}}
	kept, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	w.put(record.Uses(Stack.UID).Key, string(kept))
	got, err := r.Uses(t.Context(), Stack)
	if diff := cmp.Diff(got, want); err != nil || diff != "" {
		t.Errorf("Uses() (-got +want): %v\n%s", err, diff)
	}
}

func plansThatWereApplied(t *testing.T, w *world, r query.Records) {
	if got, err := r.Applied(t.Context(), Stack); len(got) != 0 || err != nil {
		t.Errorf("before there is one: Applied() = %+v, %v", got, err)
	}
	other := "sha256:" + strings.Repeat("7", 64)
	kept, err := json.Marshal([]record.AppliedPlan{
		{Plan: stack.Plan{Name: "plan-b", Digest: Digest, Changes: stack.Changes{Add: 1}, PlanInputs: stack.PlanInputs{Revision: "main@sha1:2"}, At: start}, Run: "apply-2", At: start.Add(time.Minute)},
		{Plan: stack.Plan{Name: "plan-a", Digest: other, At: start}, Run: "apply-1", At: start},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.put(record.Applied(Stack.UID).Key, string(kept))
	w.put(record.Plan(Stack.UID, Digest, record.UsesFile), `{"providers": [{"source": "registry.opentofu.org/hashicorp/aws", "version": "6.0.0"}]}`)
	want := []query.AppliedPlan{
		{
			PlanInfo:  query.PlanInfo{Name: "plan-b", Digest: Digest, Changes: stack.Changes{Add: 1}, Revision: "main@sha1:2", At: start},
			AppliedAt: start.Add(time.Minute), Uses: &usage.Usage{Providers: []usage.Provider{{Source: "registry.opentofu.org/hashicorp/aws", Version: "6.0.0"}}},
		},
		{PlanInfo: query.PlanInfo{Name: "plan-a", Digest: other, At: start}, AppliedAt: start},
	}
	got, err := r.Applied(t.Context(), Stack)
	if diff := cmp.Diff(got, want); err != nil || diff != "" {
		t.Errorf("Applied() (-got +want): %v\n%s", err, diff)
	}
}

func whatPoliciesFound(t *testing.T, w *world, r query.Records) {
	if got, err := r.Verdict(t.Context(), Stack, Digest); fault.Of(err) != fault.Missing || fault.Reason(err, "") != query.ReasonNoVerdict {
		t.Errorf("of a plan that no policy judged: Verdict() = %+v, %v, want Missing", got, err)
	}
	found := []policy.Finding{{Policy: "ClusterPolicy/p", Rule: "maxDestroys", Effect: policy.Hold, Severity: policy.High, Message: "the plan destroys 1 resource", Link: "https://example.com/rule"}}
	kept, err := json.Marshal(policy.Judgement{Plan: Digest, At: start, Policies: []policy.Judge{{Policy: "ClusterPolicy/p"}}, Findings: found})
	if err != nil {
		t.Fatal(err)
	}
	w.put(record.Verdict(Stack.UID, Digest).Key, string(kept))
	got, err := r.Verdict(t.Context(), Stack, Digest)
	if diff := cmp.Diff(got, query.Verdict{Effect: policy.Hold, At: start, Findings: found}); err != nil || diff != "" {
		t.Errorf("Verdict() (-got +want): %v\n%s", err, diff)
	}
}

func runIsReadFromWhereItIs(t *testing.T, _ *world, r query.Records) {
	for _, want := range []runner.Report{report("plan-1", 1, runner.Done), report("plan-3", 3, runner.Planning)} {
		got, err := r.Run(t.Context(), Stack, want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("Run(%s) (-got +want):\n%s", want.ID, diff)
		}
	}
}

func logIsReadAsFarAsItGoes(t *testing.T, _ *world, r query.Records) {
	for run, want := range map[string]string{"plan-1": "one\n", "plan-3": "three\n"} {
		if got := read(t, r, run, false); got != want {
			t.Errorf("Log(%s) = %q, want %q", run, got, want)
		}
	}
	if got := read(t, r, "apply-2", true); got != "two\n" {
		t.Errorf("following a run that has ended: %q, want its log", got)
	}
}

func logIsFollowed(t *testing.T, w *world, r query.Records) {
	log, err := r.Log(t.Context(), Stack, "plan-3", query.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	expect(t, log, "three\n")
	w.write("four\n")
	expect(t, log, "four\n")
	w.write("five\n")
	w.end()
	rest, err := io.ReadAll(log)
	if err != nil || string(rest) != "five\n" {
		t.Errorf("the rest is %q, %v; want what was written before the end", rest, err)
	}
}

func logIsFollowedFromTheStart(t *testing.T, w *world, r query.Records) {
	w.begin(report("plan-4", 4, runner.Starting))
	log, err := r.Log(t.Context(), Stack, "plan-4", query.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w.write("first\n")
	expect(t, log, "first\n")
	w.end()
	if rest, err := io.ReadAll(log); err != nil || len(rest) != 0 {
		t.Errorf("the rest is %q, %v; want nothing", rest, err)
	}
}

// logWithTimes tests that a log is read with the times that the runner wrote, and
// without them as the text that the engine wrote.
func logWithTimes(t *testing.T, w *world, r query.Records) {
	const first, second = "2026-03-14T15:09:26.535Z one\n", "2026-03-14T15:09:27.000Z two\n"
	w.begin(report("plan-4", 4, runner.Planning))
	w.write(first)
	timed, err := r.Log(t.Context(), Stack, "plan-4", query.LogOptions{Follow: true, Timestamps: true})
	if err != nil {
		t.Fatal(err)
	}
	defer timed.Close()
	expect(t, timed, first)
	plain, err := r.Log(t.Context(), Stack, "plan-4", query.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	expect(t, plain, "one\n")
	w.write(second)
	expect(t, timed, second)
	expect(t, plain, "two\n")
	w.end()
	for timestamps, want := range map[bool]string{true: first + second, false: "one\ntwo\n"} {
		log, err := r.Log(t.Context(), Stack, "plan-4", query.LogOptions{Timestamps: timestamps})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(log)
		if err := errors.Join(err, log.Close()); err != nil || string(got) != want {
			t.Errorf("with timestamps %t, the log is %q, %v; want %q", timestamps, got, err, want)
		}
	}
}

// quietCheck tests a drift check that found nothing: its record has a name that the
// next one reuses, and had its own name while it was running.
func quietCheck(t *testing.T, w *world, r query.Records) {
	w.keepAs("check", report("check-4", 4, runner.Done), "no changes\n")
	w.begin(report("plan-1", 1, runner.Done)) // nothing newer goes on
	runs, err := r.Runs(t.Context(), Stack)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, r, runs[0].ID, false); got != "no changes\n" {
		t.Errorf("the log of the newest run, %s, is %q", runs[0].ID, got)
	}
	if got := read(t, r, "check-4", false); got != "no changes\n" {
		t.Errorf("the log by its own name is %q", got)
	}
	got, err := r.Run(t.Context(), Stack, "check-4")
	if diff := cmp.Diff(got, report("check-4", 4, runner.Done)); err != nil || diff != "" {
		t.Errorf("Run(check-4) = %v (-got +want):\n%s", err, diff)
	}
	wantKind(t, r, Stack, "check-3", strings.Repeat("0", 64), fault.Missing) // an older one
}

func followingStops(t *testing.T, _ *world, r query.Records) {
	ctx, cancel := context.WithCancel(t.Context())
	log, err := r.Log(ctx, Stack, "plan-3", query.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	expect(t, log, "three\n")
	cancel()
	if _, err := io.ReadAll(log); !errors.Is(err, context.Canceled) {
		t.Errorf("the end is %v, want that it was cancelled", err)
	}
}

func planByDigest(t *testing.T, _ *world, r query.Records) {
	body, err := r.Plan(t.Context(), Stack, Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != Document {
		t.Errorf("Plan() = %q, %v; want the document", got, err)
	}
}

func missing(t *testing.T, _ *world, r query.Records) {
	wantKind(t, r, Stack, "plan-9", "sha256:"+strings.Repeat("0", 64), fault.Missing)
}

func namesThatLeadElsewhere(t *testing.T, _ *world, r query.Records) {
	for _, name := range []string{"..", "a/../b", "PLAN", "plan-1/log.txt", ".", "-"} {
		wantKind(t, r, Stack, name, "sha256:"+name, fault.Invalid)
	}
}

func wantKind(t *testing.T, r query.Records, id query.StackID, run, digest string, want fault.Kind) {
	t.Helper()
	_, runErr := r.Run(t.Context(), id, run)
	_, logErr := r.Log(t.Context(), id, run, query.LogOptions{})
	_, followErr := r.Log(t.Context(), id, run, query.LogOptions{Follow: true})
	_, planErr := r.Plan(t.Context(), id, digest)
	for what, err := range map[string]error{"Run": runErr, "Log": logErr, "Log, following": followErr, "Plan": planErr} {
		// A client may clean a path before it is sent: then nothing is served there.
		if got := fault.Of(err); got != want && !(want == fault.Invalid && got == fault.Missing) {
			t.Errorf("%s of %q is %s (%v), want %s", what, run, got, err, want)
		}
	}
}

// lastRunOfAGoneStack tests that the newest of several deleted stacks of one name is meant,
// and none of another kind or of a former namespace.
func lastRunOfAGoneStack(t *testing.T, w *world, r query.Records) {
	wantKind(t, r, Gone, "destroy-2", "sha256:"+strings.Repeat("0", 64), fault.Missing)
	if runs, err := r.Runs(t.Context(), Gone); fault.Of(err) != fault.Missing {
		t.Errorf("Runs() = %v, %v before it was deleted, want Missing", runs, err)
	}
	for i, uid := range []string{"uid-1", "uid-2", "uid-3", "uid-4", "uid-5"} {
		kind, last := Gone.Kind, report("destroy-"+string('1'+rune(i)), i, runner.Done)
		last.Gone = start.Add(time.Duration(i) * time.Hour)
		origin := kube.Origin{NamespaceUID: Gone.In.UID}
		switch uid {
		case "uid-2": // the record is of an earlier release
			origin = kube.Origin{}
		case "uid-3":
			kind = "terraform.alustan.io"
		case "uid-4":
			origin.NamespaceUID = "former-uid"
		case "uid-5":
			origin, last.Started = kube.Origin{}, start.Add(-time.Minute)
		}
		w.keepGone(kind, uid, last, origin, "log of "+uid+"\n")
	}
	want := report("destroy-2", 1, runner.Done)
	want.Gone = start.Add(time.Hour)
	runs, err := r.Runs(t.Context(), Gone)
	if diff := cmp.Diff(runs, []query.Report{want}); diff != "" || err != nil {
		t.Errorf("Runs(), %v (-got +want):\n%s", err, diff)
	}
	run, err := r.Run(t.Context(), Gone, "destroy-2")
	if diff := cmp.Diff(run, want); diff != "" || err != nil {
		t.Errorf("Run(), %v (-got +want):\n%s", err, diff)
	}
	for _, follow := range []bool{false, true} {
		if got := readOf(t, r, Gone, "destroy-2", follow); got != "log of uid-2\n" {
			t.Errorf("Log(), following: %v, is %q, want that of its last run", follow, got)
		}
	}
	if _, err := r.Log(t.Context(), Gone, "destroy-1", query.LogOptions{}); fault.Of(err) != fault.Missing {
		t.Errorf("Log() of another run = %v, want Missing", err)
	}
}

func nothingAtAll(t *testing.T, w *world, r query.Records) {
	w.forget()
	runs, err := r.Runs(t.Context(), Stack)
	if err != nil || len(runs) != 0 {
		t.Errorf("Runs() = %v, %v; want none", runs, err)
	}
}

func brokenStore(t *testing.T, w *world, r query.Records) {
	w.breakDown(errors.New("the disk is on fire"))
	if _, err := r.Runs(t.Context(), Stack); fault.Of(err) != fault.Broken {
		t.Errorf("Runs() is %v, want it to be broken", err)
	}
	if _, err := r.Plan(t.Context(), Stack, Digest); fault.Of(err) != fault.Broken {
		t.Errorf("Plan() is %v, want it to be broken", err)
	}
}

func read(t *testing.T, r query.Records, run string, follow bool) string {
	t.Helper()
	return readOf(t, r, Stack, run, follow)
}

func readOf(t *testing.T, r query.Records, id query.StackID, run string, follow bool) string {
	t.Helper()
	log, err := r.Log(t.Context(), id, run, query.LogOptions{Follow: follow})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	content, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// expect reads exactly want, waiting for it.
func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// auditLog is the audit log of a namespace of a platform, the oldest entry first.
func auditLog(t *testing.T, p *testkit.Platform, namespace string) []audit.Entry {
	t.Helper()
	page, err := audit.Read(filepath.Join(p.Dir, "audit"), audit.Query{Namespace: namespace, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(page.Items)
	return page.Items
}

// recorded waits until the audit log of a namespace has exactly these.
func recorded(t *testing.T, p *testkit.Platform, namespace string, want ...audit.What) []audit.Entry {
	t.Helper()
	var all []audit.Entry
	testkit.Eventually(t, testkit.Patience, "the audit log holds it", func(context.Context) error {
		all = auditLog(t, p, namespace)
		var got []audit.What
		for _, e := range all {
			got = append(got, e.What)
		}
		if !cmp.Equal(got, want) {
			return fmt.Errorf("recorded are\n%v, want\n%v", got, want)
		}
		return nil
	})
	return all
}

// as are the flags of kubectl to impersonate a user who may do everything.
func as(name string) []string { return []string{"--as", name, "--as-group", "system:masters"} }

// The audit log names each user as the API server does, whatever they write
// themselves.
func TestWhoDidIt(t *testing.T) {
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	file := filepath.Join(t.TempDir(), "stack.yaml")
	if err := os.WriteFile(file, []byte(inline("stack", "interval: 1h", things(w, "one", "a"))), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, append(as("ann"), "apply", "-f", file)...)
	first := c.AwaitPending(t, "stack").Status.Plan.Pending
	c.Kubectl(t, append(as("eve"), "annotate", "terraform", "stack", "--overwrite", "terrier.dev/changed-by=ann", "terrier.dev/decided-by=ann")...)
	c.Kubectl(t, append(as("eve"), "patch", "terraform", "stack", "--type", "merge", "-p", `{"spec":{"approvePlan":"plan-of-nobody"}}`)...)
	recorded(t, p, c.Namespace, audit.Created, audit.Planned, audit.ApprovedStale)
	c.Kubectl(t, append(as("bob"), "patch", "terraform", "stack", "--type", "merge", "-p",
		`{"spec":{"approvePlan":"`+first+`"},"metadata":{"annotations":{"terrier.dev/comment":"as agreed","terrier.dev/decided-by":"ann"}}}`)...)
	c.AwaitReady(t, "stack")
	recorded(t, p, c.Namespace, audit.Created, audit.Planned, audit.ApprovedStale, audit.Approved, audit.ApplyStarted, audit.Applied)

	// A user of the pages.
	c.Apply(t, inline("stack", "interval: 1h", things(w, "two", "a")))
	s := c.AwaitPending(t, "stack")
	people, err := command.NewPeople(c.Config, kinds.All(), nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	carol, err := people.As(access.User{Name: "carol", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	key := query.Key{Namespace: c.Namespace, Name: "stack"}
	if _, err := carol.Stacks.Reject(t.Context(), key, query.PlanInfo{Name: s.Status.Plan.Pending}, "not on a Friday"); err != nil {
		t.Fatal(err)
	}
	recorded(t, p, c.Namespace, audit.Created, audit.Planned, audit.ApprovedStale, audit.Approved, audit.ApplyStarted, audit.Applied,
		audit.Changed, audit.Planned, audit.Rejected)
	c.Terrier(t, "suspend", "stack")
	recorded(t, p, c.Namespace, audit.Created, audit.Planned, audit.ApprovedStale, audit.Approved, audit.ApplyStarted, audit.Applied,
		audit.Changed, audit.Planned, audit.Rejected, audit.Suspended)
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	all := recorded(t, p, c.Namespace, audit.Created, audit.Planned, audit.ApprovedStale, audit.Approved, audit.ApplyStarted, audit.Applied,
		audit.Changed, audit.Planned, audit.Rejected, audit.Suspended, audit.DeletionAsked, audit.Retained)

	for i, want := range []struct {
		who     string
		via     audit.Via
		plan    string
		comment string
	}{
		{who: "ann", via: audit.ViaKubectl},
		{via: audit.ViaController, plan: first},
		{who: "eve", via: audit.ViaKubectl, plan: "plan-of-nobody"},
		{who: "bob", via: audit.ViaKubectl, plan: first, comment: "as agreed"},
		{who: "bob", via: audit.ViaController, plan: first},
		{via: audit.ViaController, plan: first},
	} {
		e := all[i]
		if e.Who != want.who || e.Via != want.via || e.Plan != want.plan || e.Comment != want.comment {
			t.Errorf("%s is by %q via %s, of the plan %q, %q; want %+v", e.What, e.Who, e.Via, e.Plan, e.Comment, want)
		}
		if e.Object.Kind != v1alpha2.Kind || e.Object.Name != "stack" || e.Object.UID == "" {
			t.Errorf("%s is about %+v", e.What, e.Object)
		}
	}
	if digests := []string{all[1].Digest, all[3].Digest, all[4].Digest, all[5].Digest}; digests[0] == "" || len(slices.Compact(digests)) != 1 || all[5].Changes.Add != 1 {
		t.Errorf("what was planned, approved and applied has the digests %v and adds %d, want one plan that adds one", digests, all[5].Changes.Add)
	}
	if e := all[8]; e.Who != "carol" || e.Via != audit.ViaUI || e.Comment != "not on a Friday" {
		t.Errorf("the rejection is by %q via %s: %q", e.Who, e.Via, e.Comment)
	}
	if e := all[9]; e.Who == "" || e.Via != audit.ViaCLI {
		t.Errorf("the suspension is by %q via %s, want the owner of the kubeconfig at the command line", e.Who, e.Via)
	}
	if e := all[10]; e.Who != "" || e.Why == "" {
		t.Errorf("the deletion is by %q: %q, want it to be said why nobody knows", e.Who, e.Why)
	}
}

// Drift is recorded when it comes and when it goes, and looks that find nothing
// are not recorded at all, however many there are.
func TestDriftIsRecordedAndQuietChecksAreNot(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	c.Apply(t, inline("stack", "interval: 1s\napprovePlan: auto", things(w, "one", "a")))
	c.AwaitReady(t, "stack")
	quiet := []audit.What{audit.Created, audit.Planned, audit.ApplyStarted, audit.Applied}
	recorded(t, p, c.Namespace, quiet...)
	awaitChecks(t, w, 3)
	recorded(t, p, c.Namespace, quiet...)
	c.Patch(t, "stack", `{"spec":{"approvePlan":""}}`)
	c.AwaitReady(t, "stack") // now: a check that began before it would repair the drift
	w.Edit(func(thing *testkit.WorldThing) bool { thing.Value = new("defaced"); return true })
	s := c.AwaitReason(t, "stack", "DriftDetected")
	all := recorded(t, p, c.Namespace, append(quiet, audit.Changed, audit.DriftFound)...)
	if e := all[len(all)-1]; e.Plan != s.Status.Plan.Pending || e.Changes.Change != 1 {
		t.Errorf("the drift is of the plan %q and %s, want %q and one to change", e.Plan, e.Changes, s.Status.Plan.Pending)
	}
	w.Edit(func(thing *testkit.WorldThing) bool { thing.Value = new("one"); return true })
	c.AwaitReady(t, "stack")
	recorded(t, p, c.Namespace, append(quiet, audit.Changed, audit.DriftFound, audit.DriftResolved)...)
}

// What was decided about a stack, and by which rule, can be read afterwards.
func TestDecisionsAreKept(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "interval: 1h", things(w, "one", "a")))
	s := c.AwaitPending(t, "stack")
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+s.Status.Plan.Pending+`"}}`)
	c.AwaitReady(t, "stack")
	testkit.Eventually(t, testkit.Patience, "the decisions are kept", func(context.Context) error {
		var kept []stack.Decided
		if raw := platform(t).Record(t, "stacks/"+string(s.UID)+"/decisions.json"); raw != nil {
			if err := json.Unmarshal(raw, &kept); err != nil {
				return err
			}
		}
		var phases []string
		for _, d := range kept {
			phases = append(phases, d.Phase)
			if d.At.IsZero() || d.Rule == "" && d.Phase != string(stack.Queued) {
				return fmt.Errorf("a decision is %+v, want its time and its rule", d)
			}
		}
		if len(kept) < 3 || phases[len(phases)-1] != string(stack.Applied) || !slices.Contains(phases, string(stack.AwaitingApproval)) {
			return fmt.Errorf("they are %v, want the newest last", phases)
		}
		if i := slices.Index(phases, string(stack.AwaitingApproval)); !strings.Contains(kept[i].WaitingFor, s.Status.Plan.Pending) {
			return fmt.Errorf("an approval waits for %q", kept[i].WaitingFor)
		}
		return nil
	})
}

// An audit log that cannot be written blocks the runs that change resources, with a
// message. A change of its files while Terrier is stopped is found.
func TestAuditLogBlocksRunsAndIsVerified(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t)
	c := p.Cluster(t)
	w := p.World(t)
	c.Apply(t, inline("stack", "interval: 1h\nretryInterval: 1s", things(w, "one", "a")))
	s := c.AwaitPending(t, "stack")
	segment := filepath.Join(p.Dir, "audit", fmt.Sprintf("%020d.jsonl", 1))
	if err := os.Rename(segment, segment+".away"); err != nil {
		t.Fatal(err)
	}
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+s.Status.Plan.Pending+`"}}`)
	held := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if m := message(s); !strings.Contains(m, "the audit log cannot record") {
			return fmt.Errorf("it says %q", m)
		}
		return nil
	})
	if len(w.Things()) != 0 {
		t.Errorf("the world holds %+v although nothing could be recorded; the status: %s", w.Things(), message(held))
	}
	if err := os.Rename(segment+".away", segment); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady(t, "stack")
	recorded(t, p, c.Namespace, audit.Created, audit.Planned, audit.Approved, audit.ApplyStarted, audit.Applied)

	if out := c.Terrier(t, "audit", "verify"); !strings.Contains(out, "verified") {
		t.Errorf("audit verify says %q", out)
	}
	var page struct{ Items []audit.Entry }
	if err := json.Unmarshal([]byte(c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "--what", "approved", "-o", "json")), &page); err != nil || len(page.Items) != 1 {
		t.Errorf("audit list finds %+v (%v), want the approval", page.Items, err)
	}
	if _, err := p.Stop(); err != nil { // which keeps the head elsewhere
		t.Fatal(err)
	}
	text, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	if err := os.WriteFile(segment, []byte(strings.Join(lines[:len(lines)-1], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if r := c.TryTerrier(t, "audit", "verify"); r.Code == 0 || !strings.Contains(r.Stderr, "kept outside") {
		t.Errorf("audit verify of an audit log whose end was cut off ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

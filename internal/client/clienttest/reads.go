package clienttest

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func lists(t *testing.T, w *World, s Subject) {
	for name, tt := range map[string]struct {
		filter query.Filter
		want   []string
	}{
		"all":         {query.Filter{}, []string{"net", "shop"}},
		"by a label":  {query.Filter{Selector: "team=net"}, []string{"net"}},
		"by name":     {query.Filter{Name: "shop"}, []string{"shop"}},
		"none of all": {query.Filter{Selector: "team=sea"}, nil},
	} {
		tt.filter.Namespace = w.Namespace
		var got []string
		for _, one := range must(s.Stacks.List(t.Context(), tt.filter))(t) {
			got = append(got, one.Name)
		}
		if diff := cmp.Diff(got, tt.want); diff != "" {
			t.Errorf("List(), %s (-got +want):\n%s", name, diff)
		}
	}
	_, err := s.Stacks.List(t.Context(), query.Filter{Namespace: w.Namespace, Selector: "a b"})
	want(t, "List() by what is no selector", err, fault.Invalid, "SelectorInvalid")
}

func describes(t *testing.T, w *World, s Subject) {
	w.waits(t, shown)
	got := must(s.Stacks.Get(t.Context(), w.key("net")))(t)
	if got.UID != w.id(t).UID || got.Path != "./net" || got.Pending != shown.Name || got.Plan == nil || got.Plan.Digest != shown.Digest || got.Plan.Changes != shown.Changes {
		t.Errorf("Get() = %+v, want the stack with its plan", got)
	}
	d := must(s.Stacks.Describe(t.Context(), w.key("net")))(t)
	if diff := cmp.Diff(d.Stack, got); diff != "" {
		t.Errorf("what is described is another stack (-got +want):\n%s", diff)
	}
	if d.Means.Means == "" {
		t.Error("the description does not say what the phase means")
	}
	e := must(s.Stacks.Explain(t.Context(), w.key("net")))(t)
	if e.Stack.UID != got.UID || len(e.Rules) == 0 || e.Means != d.Means {
		t.Errorf("Explain() = %+v, want the rules", e)
	}
}

func reads(t *testing.T, w *World, s Subject) {
	w.ran(t, "plan-1", noon, "one\n")
	w.ran(t, "apply-2", noon.Add(time.Minute), "two\n")
	all := must(s.Stacks.Runs(t.Context(), w.key("net")))(t)
	if ids := idsOf(all); !slices.Equal(ids, []string{"apply-2", "plan-1"}) {
		t.Errorf("Runs() = %v, want the newest first", ids)
	}
	for run, id := range map[string]string{"plan-1": "plan-1", "": "apply-2"} {
		if got := must(s.Stacks.Run(t.Context(), w.key("net"), run))(t); got.ID != id || got.Outcome != stack.Succeeded {
			t.Errorf("Run(%q) = %+v, want %s", run, got, id)
		}
	}
	for run, text := range map[string]string{"plan-1": "one\n", "": "two\n"} {
		for _, follow := range []bool{false, true} {
			if got := readLog(t, w, s, run, follow); got != text {
				t.Errorf("Log(%q, %t) = %q, want %q", run, follow, got, text)
			}
		}
	}
}

func idsOf(runs []query.Report) []string {
	var out []string
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return out
}

func readLog(t *testing.T, w *World, s Subject, run string, follow bool) string {
	t.Helper()
	r := must(s.Stacks.Log(t.Context(), w.key("net"), run, query.LogOptions{Follow: follow}))(t)
	defer r.Close()
	return string(must(io.ReadAll(r))(t))
}

func follows(t *testing.T, w *World, s Subject) {
	id := w.id(t)
	w.runs.begin(runner.Report{ID: "plan-3", Stack: id.UID, Kind: stack.PlanRun, Phase: runner.Planning, Started: noon})
	w.runs.write("first\n")
	r := must(s.Stacks.Log(t.Context(), w.key("net"), "plan-3", query.LogOptions{Follow: true}))(t)
	defer r.Close()
	for _, text := range []string{"first\n", "second\n"} {
		got := make([]byte, len(text))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
			t.Fatalf("read %q, %v; want %q", got, err, text)
		}
		if text == "first\n" {
			w.runs.write("second\n")
		}
	}
	w.runs.write("last\n")
	w.ran(t, "plan-3", noon, "first\nsecond\nlast\n")
	w.runs.end()
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "last\n" {
		t.Errorf("the rest is %q, %v; want what was written before the end", rest, err)
	}
}

func readsPlans(t *testing.T, w *World, s Subject) {
	w.waits(t, shown)
	for _, digest := range []string{"", shown.Digest} {
		got := must(s.Stacks.Plan(t.Context(), w.key("net"), digest))(t)
		if got.Name != shown.Name || !got.Waits || string(got.Document) != document {
			t.Errorf("Plan(%q) = %+v, want the one that waits", digest, got)
		}
	}
	_, err := s.Stacks.Plan(t.Context(), w.key("net"), other.Digest)
	want(t, "Plan() that nobody kept", err, fault.Missing, query.ReasonNotKept)
	_, err = s.Stacks.Plan(t.Context(), w.key("net"), "../"+shown.Digest)
	want(t, "Plan() of no digest", err, fault.Invalid, "NameInvalid")
	_, err = s.Stacks.Plan(t.Context(), w.key("shop"), "")
	want(t, "Plan() of a stack without one", err, fault.Missing, query.ReasonNoPlan)
}

func missing(t *testing.T, w *World, s Subject) {
	for what, err := range eachOfStack(t, s, w.key("none")) {
		want(t, what, err, fault.Missing, access.ReasonNotFound)
	}
	_, err := s.Stacks.Run(t.Context(), w.key("net"), "")
	want(t, "Run() of a stack that never ran", err, fault.Missing, query.ReasonNoRuns)
	_, err = s.Stacks.Run(t.Context(), w.key("net"), "plan-9")
	want(t, "Run() that never was", err, fault.Missing, query.ReasonNotKept)
	for _, follow := range []bool{false, true} {
		_, err = s.Stacks.Log(t.Context(), w.key("net"), "plan-9", query.LogOptions{Follow: follow})
		want(t, "Log() of a run that never was", err, fault.Missing, query.ReasonNotKept)
	}
	_, err = s.Stacks.StateOf(t.Context(), w.key("net"), "", false)
	want(t, "StateOf() of a stack without one", err, fault.Missing, query.ReasonNoState)
	for what, err := range eachOfTenants(t, s, w.key("none")) {
		want(t, what, err, fault.Missing, query.ReasonNoSuchThing)
	}
}

func invalid(t *testing.T, w *World, s Subject) {
	for _, name := range []string{"..", "a/b", "../net", "NET", "net ", "", "a%2fb", strings.Repeat("a", 260)} {
		for what, err := range eachOfStack(t, s, w.key(name)) {
			want(t, what+" of "+name, err, fault.Invalid, "NameInvalid")
		}
		for what, err := range eachOfTenants(t, s, w.key(name)) {
			want(t, what+" of "+name, err, fault.Invalid, "NameInvalid")
		}
	}
	for _, run := range []string{"..", "a/b", "PLAN", "plan-1/log.txt"} {
		_, err := s.Stacks.Run(t.Context(), w.key("net"), run)
		want(t, "Run() of "+run, err, fault.Invalid, "NameInvalid")
		_, err = s.Stacks.Log(t.Context(), w.key("net"), run, query.LogOptions{Follow: true})
		want(t, "Log() of "+run, err, fault.Invalid, "NameInvalid")
	}
}

func denied(t *testing.T, w *World, s Subject) {
	w.waits(t, shown)
	before := w.object(t, "net").ResourceVersion
	for what, err := range eachOfStack(t, s, w.key("net")) {
		want(t, what, err, fault.Denied, access.ReasonAccessDenied)
	}
	_, err := s.Stacks.List(t.Context(), query.Filter{Namespace: w.Namespace})
	want(t, "List()", err, fault.Denied, access.ReasonAccessDenied)
	for name, things := range map[string]string{"acme-web": "Describe()", "customers": "Registry()", "web": "Rollout()"} {
		want(t, things, eachOfTenants(t, s, w.key(name))[things], fault.Denied, access.ReasonAccessDenied)
	}
	for what, err := range tenantCommands(t, s, w.key("customers"), w.key("web")) {
		want(t, what, err, fault.Denied, access.ReasonAccessDenied)
	}
	_, err = s.Tenants.List(t.Context(), query.TenantFilter{Namespace: w.Namespace})
	want(t, "List() of tenants", err, fault.Denied, access.ReasonAccessDenied)
	if o := w.object(t, "net"); o.ResourceVersion != before {
		t.Errorf("the stack was changed: %+v %v", o.Spec, o.Annotations)
	}
}

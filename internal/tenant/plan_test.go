package tenant

import (
	stdcmp "cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// thing is one resource and its object, rendered.
func thing(r Resource, kind string) (Resource, Object) {
	apiVersion := map[string]string{"Terraform": "infra.contrib.fluxcd.io/v1alpha2", "Deployment": "apps/v1"}[kind]
	if apiVersion == "" {
		apiVersion = "v1"
	}
	if r.Timeout == 0 {
		r.Timeout = 5 * time.Minute
	}
	meta := map[string]any{"name": r.ID}
	if kind != "Namespace" {
		meta["namespace"] = stdcmp.Or(r.TargetNamespace, "default")
	}
	return r, Object{Resource: r, Rendered: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta}}
}

// estate is a tenant of which every object is as it should be, and ready.
type estate struct {
	Observed
}

func newEstate() *estate {
	return &estate{Observed{Now: noon, Live: map[Ref]Child{}}}
}

// add gives the template one more resource; its object is there if child says so.
func (e *estate) add(r Resource, kind string, child Child) *estate {
	r, o := thing(r, kind)
	e.Resources, e.Objects = append(e.Resources, r), append(e.Objects, o)
	if child.Exists && child.UID == "" {
		child.UID = "uid-" + r.ID
	}
	e.Live[RefOf(o.Rendered)] = child
	return e
}

// had puts an object into the inventory that is not in the template.
func (e *estate) had(i Item, child Child) *estate {
	e.Inventory = append(e.Inventory, i)
	if child.Exists && child.UID == "" {
		child.UID = i.UID
	}
	e.Live[i.Ref] = child
	return e
}

func (e *estate) before(v ...Verdict) *estate {
	e.Before = append(e.Before, v...)
	return e
}

func good() Child {
	return Child{Exists: true, Owned: true, Current: true, Readiness: IsReady}
}

func bad(message string) Child {
	c := good()
	c.Readiness, c.Message = IsProgressing, message
	return c
}

func item(id, kind, uid string, deletion DeletionPolicy, order int) Item {
	_, o := thing(Resource{ID: id}, kind)
	return Item{ID: id, Ref: RefOf(o.Rendered), UID: uid, Deletion: deletion, Order: order}
}

// brief is what an outcome says, in short.
func brief(o Outcome) []string {
	var all []string
	for _, a := range o.Acts {
		switch {
		case a.Write != nil:
			all = append(all, "write "+a.Write.ID)
		case a.Remove != nil:
			all = append(all, "remove "+a.Remove.ID)
		default:
			all = append(all, "orphan "+a.Orphan.ID+" "+a.Why)
		}
	}
	for _, d := range o.Departed {
		all = append(all, "gone "+d.ID)
	}
	for _, v := range o.Verdicts {
		if v.State == Ready {
			continue
		}
		all = append(all, v.ID+" "+string(v.State)+" "+v.Reason)
	}
	return all
}

func TestPlan(t *testing.T) {
	depends := func(id string, on ...string) Resource { return Resource{ID: id, DependIDs: on} }
	late := noon.Add(-6 * time.Minute)
	tests := []struct {
		name string
		in   *estate
		want []string
	}{
		{"nothing is done to what is right",
			newEstate().add(depends("db"), "Terraform", good()).add(depends("app", "db"), "Deployment", good()), nil},
		{"an object of somebody else that was made once tells nothing of itself",
			newEstate().add(Resource{ID: "probe", Creation: Once, ReadyWhen: "object.data.password.startsWith('a')"}, "Secret",
				Child{Exists: true, CreatedOnce: true, Object: map[string]any{"data": map[string]any{"password": "abc"}}}),
			[]string{"write probe", "probe Progressing Applying"}},
		{"a dependency is written first, and its dependents wait (A5)",
			newEstate().add(depends("app", "db"), "Deployment", Child{}).add(depends("db"), "Terraform", Child{}),
			[]string{"write db", "db Progressing Applying", "app Pending DependencyNotReady"}},
		{"a dependency that is there and not ready holds its dependents (D-05)",
			newEstate().add(depends("db"), "Terraform", bad("no status yet")).add(depends("app", "db"), "Deployment", Child{}),
			[]string{"db Progressing NotReady", "app Pending DependencyNotReady"}},
		{"a dependency that is not what it should be yet holds them although it says that it is ready",
			newEstate().add(depends("net"), "ConfigMap", bad("")).add(depends("db", "net"), "Terraform", Child{Exists: true, Owned: true, Readiness: IsReady}).add(depends("app", "db"), "Deployment", Child{}),
			[]string{"net Progressing NotReady", "db Pending DependencyNotReady", "app Pending DependencyNotReady"}},
		{"after its timeout a resource has failed, and dependents are skipped",
			newEstate().add(depends("db"), "Terraform", bad("plan failed")).add(depends("app", "db"), "Deployment", Child{}).add(depends("more", "app"), "Deployment", Child{}).
				before(Verdict{ID: "db", State: Progressing, Reason: NotReady, Since: late}),
			[]string{"db Failed ReadinessTimeout", "app Skipped DependencySkipped", "more Skipped DependencySkipped"}},
		{"skipOnDependencyFailure false proceeds",
			newEstate().add(depends("db"), "Terraform", bad("")).add(Resource{ID: "app", DependIDs: []string{"db"}, ProceedOnFailedDepends: true}, "Deployment", Child{}).
				before(Verdict{ID: "db", State: Failed, Reason: ReadinessTimeout, Since: late}),
			[]string{"write app", "db Failed ReadinessTimeout", "app Progressing Applying"}},
		{"it does not proceed before the failure",
			newEstate().add(depends("db"), "Terraform", bad("")).add(Resource{ID: "app", DependIDs: []string{"db"}, ProceedOnFailedDepends: true}, "Deployment", Child{}),
			[]string{"db Progressing NotReady", "app Pending DependencyNotReady"}},
		{"recovery resumes",
			newEstate().add(depends("db"), "Terraform", good()).add(depends("app", "db"), "Deployment", Child{}).
				before(Verdict{ID: "db", State: Failed, Reason: ReadinessTimeout, Since: late}, Verdict{ID: "app", State: Skipped, Reason: DependencySkipped, Since: late}),
			[]string{"write app", "app Progressing Applying"}},
		{"a change starts the time anew",
			newEstate().add(depends("db"), "Terraform", func() Child { c := bad(""); c.Wrote = true; return c }()).
				before(Verdict{ID: "db", State: Failed, Reason: ReadinessTimeout, Since: late}),
			[]string{"db Progressing NotReady"}},
		{"what says that it failed is not waited for (A13)",
			newEstate().add(depends("db"), "Terraform", Child{Exists: true, Owned: true, Current: true, Readiness: IsFailed, Message: "main.tf:1: no"}).add(depends("app", "db"), "Deployment", Child{}),
			[]string{"db Failed ResourceFailed", "app Skipped DependencySkipped"}},
		{"waitForReady false counts as ready once written",
			newEstate().add(Resource{ID: "db", NoWait: true}, "Terraform", bad("")).add(depends("app", "db"), "Deployment", Child{}),
			[]string{"write app", "app Progressing Applying"}},
		{"what was made once is not written again, and is judged (A8)",
			newEstate().add(Resource{ID: "db", Creation: Once}, "Terraform", Child{Exists: true, Owned: true, CreatedOnce: true, Readiness: IsProgressing}),
			[]string{"db Progressing NotReady"}},
		{"what was made once for somebody else is not judged, but tried, which says whose it is",
			newEstate().add(Resource{ID: "db", Creation: Once, ReadyWhen: "true"}, "Terraform", Child{Exists: true, CreatedOnce: true, Readiness: IsReady}),
			[]string{"write db", "db Progressing Applying"}},
		{"what was made once and is gone is made again",
			newEstate().add(Resource{ID: "db", Creation: Once}, "Terraform", Child{}),
			[]string{"write db", "db Progressing Applying"}},
		{"what was there before Once is written, which marks it",
			newEstate().add(Resource{ID: "db", Creation: Once}, "Terraform", Child{Exists: true, Owned: true}),
			[]string{"write db", "db Progressing Applying"}},
		{"an object that is being deleted is waited for",
			newEstate().add(depends("db"), "Terraform", Child{Exists: true, Owned: true, Deleting: true}),
			[]string{"db Progressing BeingDeleted"}},
		{"a conflict is said, and tried again later",
			newEstate().add(depends("db"), "ConfigMap", Child{Exists: true, Failure: &Failure{Conflict: true, RetryAt: noon.Add(time.Minute)}}).add(depends("app", "db"), "Deployment", Child{}),
			[]string{"db Conflicted ResourceConflict", "app Skipped DependencySkipped"}},
		{"an attempt that is due is made",
			newEstate().add(depends("db"), "ConfigMap", Child{Exists: true, Failure: &Failure{Conflict: true, RetryAt: noon}}),
			[]string{"write db", "db Progressing Applying"}},
		{"what is not in the template any more goes (D-06)",
			newEstate().had(item("old", "Terraform", "u", Delete, 3), Child{Exists: true, Owned: true}),
			[]string{"remove old", "old Deleting RemovedFromTemplate"}},
		{"or stays as an orphan",
			newEstate().had(item("old", "Terraform", "u", Retain, 3), Child{Exists: true, Owned: true}),
			[]string{"orphan old RemovedFromTemplate", "old Kept RemovedFromTemplate"}},
		{"a person may write on an object that it stays",
			newEstate().had(item("old", "Terraform", "u", Delete, 3), Child{Exists: true, Owned: true, Deletion: Retain}),
			[]string{"orphan old RemovedFromTemplate", "old Kept RemovedFromTemplate"}},
		{"an object that could not be deleted stays in the inventory (D-06)",
			newEstate().had(item("old", "Terraform", "u", Delete, 3), Child{Exists: true, Owned: true, Failure: &Failure{RetryAt: noon.Add(time.Minute)}}),
			[]string{"old Deleting CleanupPartialFailure"}},
		{"an object that took the place of ours is let alone",
			newEstate().had(item("old", "Terraform", "u", Delete, 3), Child{Exists: true, UID: "other"}),
			[]string{"gone old"}},
		{"what cannot be rendered keeps what it had",
			func() *estate {
				e := newEstate().add(depends("db"), "Terraform", Child{}).had(item("db", "Terraform", "u", Delete, 3), Child{Exists: true, Owned: true})
				e.Objects, e.Errors = nil, []ResourceError{{ID: "db", Field: "spec", Message: "no"}}
				return e
			}(),
			[]string{"db Failed TemplateRenderError", "db Kept TemplateRenderError"}},
		{"what includeWhen leaves out goes, and is nothing to wait for",
			func() *estate {
				e := newEstate().add(depends("cache"), "ConfigMap", Child{}).add(depends("app", "cache"), "Deployment", Child{})
				e.Objects = e.Objects[1:]
				return e.had(item("cache", "ConfigMap", "u", Delete, 1), Child{Exists: true, Owned: true})
			}(),
			[]string{"remove cache", "write app", "app Progressing Applying", "cache Deleting RemovedFromTemplate"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, brief(Plan(tt.in.Observed))); diff != "" {
				t.Errorf("Plan() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanOfADeletedTenant(t *testing.T) {
	there := Child{Exists: true, Owned: true}
	going := Child{Exists: true, Owned: true, Deleting: true, Finalizers: []string{"finalizers.tf.contrib.fluxcd.io"}}
	tests := []struct {
		name      string
		in        *estate
		protected bool
		want      []string
	}{
		{"the last made goes first",
			newEstate().had(item("app", "Deployment", "a", Delete, 6), there).had(item("db", "Terraform", "d", Delete, 3), there),
			false, []string{"remove app", "app Deleting TenantDeleted", "db Deleting WaitsForDependents"}},
		{"a finalizer of a child is waited for, however long (D-07)",
			newEstate().had(item("db", "Terraform", "d", Delete, 3), going).had(item("creds", "Secret", "c", Delete, 1), there),
			false, []string{"db Deleting WaitsForFinalizers", "creds Deleting WaitsForDependents"}},
		{"credentials go after the Terraform that may need them (A10)",
			newEstate().had(item("creds", "Secret", "c", Delete, rank(0, Ref{Kind: "Secret"})), there).
				had(item("db", "Terraform", "d", Delete, rank(0, Ref{Group: "infra.contrib.fluxcd.io", Kind: "Terraform"})), there),
			false, []string{"remove db", "db Deleting TenantDeleted", "creds Deleting WaitsForDependents"}},
		{"what is retained stays, and nothing waits for it (A9)",
			newEstate().had(item("db", "Terraform", "d", Retain, 3), there).had(item("creds", "Secret", "c", Delete, 1), there),
			false, []string{"orphan db TenantDeleted", "remove creds", "db Kept TenantDeleted", "creds Deleting TenantDeleted"}},
		{"a namespace stays with what is retained in it",
			newEstate().had(item("default", "Namespace", "n", Delete, 0), there).had(item("db", "Terraform", "d", Retain, 3), there),
			false, []string{"orphan db TenantDeleted", "orphan default TenantDeleted", "db Kept TenantDeleted", "default Kept TenantDeleted"}},
		{"a namespace goes after what is in it, whatever the order says",
			newEstate().had(item("default", "Namespace", "n", Delete, 9), there).had(item("app", "Deployment", "a", Delete, 6), going),
			false, []string{"default Deleting WaitsForDependents", "app Deleting WaitsForFinalizers"}},
		{"what may be there because it cannot be looked at holds what was made before it",
			newEstate().had(item("db", "Terraform", "d", Delete, 3), Child{Unseen: true, Failure: &Failure{Reason: Forbidden, RetryAt: noon.Add(time.Minute)}}).had(item("creds", "Secret", "c", Delete, 1), there),
			false, []string{"db Kept Forbidden", "creds Deleting WaitsForDependents"}},
		{"what was made to be retained is, as long as it was not written since",
			newEstate().add(Resource{ID: "db", Creation: Once}, "Terraform", Child{}).had(item("db", "Terraform", "d", Delete, 3), Child{Exists: true, Owned: true, CreatedOnce: true, Deletion: Retain}),
			false, []string{"orphan db TenantDeleted", "db Kept TenantDeleted"}},
		{"a protected tenant keeps everything",
			newEstate().had(item("db", "Terraform", "d", Delete, 3), there),
			true, []string{"db Kept DeletionProtected"}},
		{"nothing is left", newEstate().had(item("db", "Terraform", "d", Delete, 3), Child{}), false, []string{"gone db"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Deleting, tt.in.Protected = true, tt.protected
			out := Plan(tt.in.Observed)
			if diff := cmp.Diff(tt.want, brief(out)); diff != "" {
				t.Errorf("Plan() (-want +got):\n%s", diff)
			}
			if got, want := out.Done, len(out.Inventory) == 0; got != want {
				t.Errorf("Done = %t, want %t", got, want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	conflict := Child{Exists: true, Failure: &Failure{Conflict: true, Message: "held by kubectl", RetryAt: noon.Add(time.Minute)}}
	broken := Child{Failure: &Failure{Message: "refused", RetryAt: noon.Add(time.Minute)}}
	tests := []struct {
		name string
		in   *estate
		want string
	}{
		{"ready", newEstate().add(Resource{ID: "a"}, "ConfigMap", good()), "Ready=true/Reconciled Progressing=false/ReconcileComplete Conflicted=false/NoConflict Degraded=false/Healthy"},
		{"a normal start is not degraded", newEstate().add(Resource{ID: "a"}, "Deployment", bad("")), "Ready=false/NotAllResourcesReady Progressing=true/Reconciling Conflicted=false/NoConflict Degraded=false/ResourcesNotReady"},
		{"failed", newEstate().add(Resource{ID: "a"}, "ConfigMap", broken), "Ready=false/ResourcesFailed Progressing=false/ReconcileComplete Conflicted=false/NoConflict Degraded=true/ResourceFailures"},
		{"conflicted", newEstate().add(Resource{ID: "a"}, "ConfigMap", conflict), "Ready=false/ResourcesConflicted Progressing=false/ReconcileComplete Conflicted=true/ResourceConflict Degraded=true/ResourceConflicts"},
		{"both", newEstate().add(Resource{ID: "a"}, "ConfigMap", conflict).add(Resource{ID: "b"}, "ConfigMap", broken), "Ready=false/ResourcesFailedAndConflicted Progressing=false/ReconcileComplete Conflicted=true/ResourceConflict Degraded=true/ResourceFailuresAndConflicts"},
		{"no row", func() *estate {
			e := newEstate().add(Resource{ID: "a"}, "ConfigMap", good())
			e.Broken = &Failure{Reason: VariablesBuildError, Message: "no row"}
			return e
		}(), "Ready=false/VariablesBuildError Progressing=false/ReconcileComplete Conflicted=false/NoConflict Degraded=true/VariablesBuildError"},
		{"a cycle", newEstate().add(Resource{ID: "a", DependIDs: []string{"b"}}, "ConfigMap", good()).add(Resource{ID: "b", DependIDs: []string{"a"}}, "ConfigMap", good()), "Ready=false/DependencyError Progressing=false/ReconcileComplete Conflicted=false/NoConflict Degraded=true/DependencyCycle"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range Plan(tt.in.Observed).Conditions {
				got = append(got, string(c.Type)+"="+map[bool]string{true: "true", false: "false"}[c.True]+"/"+c.Reason)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("conditions = %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestCounters(t *testing.T) {
	e := newEstate().
		add(Resource{ID: "a"}, "ConfigMap", good()).
		add(Resource{ID: "b"}, "ConfigMap", Child{Exists: true, Failure: &Failure{Conflict: true, RetryAt: noon.Add(time.Minute)}}).
		add(Resource{ID: "c", DependIDs: []string{"b"}}, "ConfigMap", Child{})
	out := Plan(e.Observed)
	if out.Desired != 3 || out.Ready != 1 || out.Failed != 1 || out.Conflicted != 1 || !slices.Equal(out.Skipped, []string{"c"}) {
		t.Errorf("desired, ready, failed, conflicted, skipped = %d, %d, %d, %d, %v, want 3, 1, 1, 1, [c]", out.Desired, out.Ready, out.Failed, out.Conflicted, out.Skipped)
	}
	if out.Written {
		t.Error("Written although an object is somebody else's")
	}
	if out := Plan(newEstate().add(Resource{ID: "a"}, "Deployment", bad("")).Observed); !out.Written {
		t.Error("not Written although every object is as it should be, and only not ready")
	}
}

func TestEventsAreOfChanges(t *testing.T) {
	e := newEstate().add(Resource{ID: "a"}, "Deployment", bad("no")).before(Verdict{ID: "a", State: Progressing, Reason: NotReady, Since: noon.Add(-time.Hour)})
	first := Plan(e.Observed)
	if len(first.Events) != 1 || first.Events[0].Reason != ReadinessTimeout {
		t.Fatalf("events = %+v, want one %s", first.Events, ReadinessTimeout)
	}
	e.Before, e.Now = first.Verdicts, noon.Add(time.Hour)
	second := Plan(e.Observed)
	if len(second.Events) != 0 {
		t.Errorf("events of nothing new = %+v", second.Events)
	}
	if diff := cmp.Diff(first.Verdicts, second.Verdicts); diff != "" {
		t.Errorf("a later look differs (-first +second):\n%s", diff)
	}
}

func TestTimeoutAsksForAPass(t *testing.T) {
	e := newEstate().add(Resource{ID: "a", Timeout: time.Minute}, "Deployment", bad("")).before(Verdict{ID: "a", State: Progressing, Reason: NotReady, Since: noon.Add(-20 * time.Second)})
	if got := Plan(e.Observed).Recheck; got != 40*time.Second {
		t.Errorf("Recheck = %s, want 40s", got)
	}
}

// No event comes of an object of a kind that the controller may not watch.
func TestUnwatchedObjectsAreReadAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		child Child
		want  time.Duration
	}{
		"until it is ready":    {Child{Exists: true, Owned: true, Current: true, Unwatched: true, Readiness: IsProgressing}, 5 * time.Second},
		"for drift, after":     {Child{Exists: true, Owned: true, Current: true, Unwatched: true, Readiness: IsReady}, 5 * time.Minute},
		"not if it is watched": {Child{Exists: true, Owned: true, Current: true, Readiness: IsReady}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEstate().add(Resource{ID: "a", Timeout: time.Hour}, "Deployment", tt.child)
			if got := Plan(e.Observed).Recheck; got != tt.want {
				t.Errorf("Recheck = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	i := Item{ID: "app", Ref: Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "ns", Name: "acme-app"}}
	got, ok := ParseKey(i.Key())
	if want := (Item{ID: "app", Ref: Ref{Kind: "Deployment", Namespace: "ns", Name: "acme-app"}}); !ok || got != want {
		t.Errorf("ParseKey(%q) = %+v, %t, want %+v", i.Key(), got, ok, want)
	}
	for _, key := range []string{"", "Deployment/ns/app", "Deployment/app@id", "/ns/app@id"} {
		if _, ok := ParseKey(key); ok {
			t.Errorf("ParseKey(%q) is accepted", key)
		}
	}
}

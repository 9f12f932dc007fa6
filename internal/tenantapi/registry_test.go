package tenantapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

func TestLeavingIsReadAsItIsWritten(t *testing.T) {
	for _, want := range []tenant.Leaving{
		{Since: time.Date(2026, 11, 28, 12, 0, 0, 123456000, time.UTC)},
		{Since: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Absent: true},
		{Since: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Template: true, Allowed: true},
		{Since: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Absent: true, Allowed: true},
		{Since: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Due: time.Date(2026, 11, 28, 12, 1, 0, 123000, time.UTC)},
		{Since: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Due: time.Date(2026, 11, 28, 12, 1, 0, 0, time.UTC), Absent: true, Allowed: true},
	} {
		tn := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenantsv1.AnnotationLeaving: LeavingText(want)}}}
		got := Leaving(tn)
		if got == nil || !got.Since.Equal(want.Since) || got.Absent != want.Absent || got.Allowed != want.Allowed || !got.Due.Equal(want.Due) {
			t.Errorf("%q is read as %+v, want %+v", LeavingText(want), got, want)
		}
	}
	for _, text := range []string{"", "yes", "yesterday RowAbsent", "2026-11-28T12:00:00Z"} {
		tn := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenantsv1.AnnotationLeaving: text}}}
		if got := Leaving(tn); got != nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// A Tenant is ready with what it is now, not with what it was.
func TestReadyIsOfThisGenerationAndThisRow(t *testing.T) {
	tn := func(edit func(*tenantsv1.Tenant)) tenant.Existing {
		o := &tenantsv1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Generation: 3, Annotations: map[string]string{tenantsv1.AnnotationRow: "d", tenantsv1.AnnotationTemplateGeneration: "2"}},
			Status: tenantsv1.TenantStatus{
				ObservedGeneration: 3, Row: "d", TemplateGeneration: 2,
				Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}, {Type: "Degraded", Status: metav1.ConditionFalse}},
			},
		}
		edit(o)
		return Existing(o)
	}
	for rule, c := range map[string]struct {
		edit          func(*tenantsv1.Tenant)
		ready, failed bool
	}{
		"as it is":                     {func(*tenantsv1.Tenant) {}, true, false},
		"another spec":                 {func(o *tenantsv1.Tenant) { o.Generation = 4 }, false, false},
		"another row":                  {func(o *tenantsv1.Tenant) { o.Annotations[tenantsv1.AnnotationRow] = "e" }, false, false},
		"the same spec of another one": {func(o *tenantsv1.Tenant) { o.Annotations[tenantsv1.AnnotationTemplateGeneration] = "3" }, false, false},
		"not ready and nothing failed": {func(o *tenantsv1.Tenant) { o.Status.Conditions[0].Status = metav1.ConditionFalse }, false, false},
		"failed, before it was made": {func(o *tenantsv1.Tenant) {
			o.Status.TemplateGeneration = 1
			o.Status.Conditions[1].Status = metav1.ConditionTrue
		}, false, true},
		"failed with an earlier spec":    {func(o *tenantsv1.Tenant) { o.Generation = 4; o.Status.Conditions[1].Status = metav1.ConditionTrue }, false, false},
		"nothing was ever said about it": {func(o *tenantsv1.Tenant) { o.Status = tenantsv1.TenantStatus{} }, false, false},
	} {
		t.Run(rule, func(t *testing.T) {
			if e := tn(c.edit); e.Ready != c.ready || e.Failed != c.failed {
				t.Errorf("ready %t, failed %t, want %t, %t", e.Ready, e.Failed, c.ready, c.failed)
			}
		})
	}
}

func TestDefaultsOfARegistry(t *testing.T) {
	r := &tenantsv1.TenantRegistry{}
	if diff := cmp.Diff(tenant.Guard{MaxPercent: 10, MaxCount: 10, Grace: time.Minute}, Guard(r)); diff != "" {
		t.Errorf("the guard (-want +got):\n%s", diff)
	}
	for text, want := range map[string]time.Duration{"": 30 * time.Second, "soon": 30 * time.Second, "0s": time.Second, "5m": 5 * time.Minute} {
		r.Spec.Source.SyncInterval = text
		if got := Interval(r); got != want {
			t.Errorf("syncInterval %q is %s, want %s", text, got, want)
		}
	}
}

func TestWavesSelectByLabels(t *testing.T) {
	o := &tenantsv1.TenantTemplate{}
	if r, err := Rollout(o); r != nil || err != nil {
		t.Errorf("no rollout is %+v, %v", r, err)
	}
	o.Spec.Rollout = &tenantsv1.Rollout{Waves: []tenantsv1.Wave{{Name: "a", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}}}
	r, err := Rollout(o)
	if err != nil || r.Deadline != 10*time.Minute || !r.Waves[0].Matches(map[string]string{"canary": "yes"}) || r.Waves[0].Matches(nil) {
		t.Errorf("the rollout is %+v, %v", r, err)
	}
	o.Spec.Rollout.Waves[0].Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
	if _, err := Rollout(o); fault.Of(err) != fault.Invalid {
		t.Errorf("a selector that is none is %v", err)
	}
}

// A tenant of a long name is found without a tie as well, and is the same after it is tied again.
func TestUntiedTenantsKnowTheirRegistry(t *testing.T) {
	for _, name := range []string{"reg", strings.Repeat("a", 100)} {
		registry := &tenantsv1.TenantRegistry{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
		other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "2"}
		o := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tenantsv1.LabelRegistry: tenant.Label(name)}, OwnerReferences: []metav1.OwnerReference{other}}}
		Tie(o, registry)
		tied := o.DeepCopy()
		if !metav1.IsControlledBy(o, registry) || !Existing(o).Tied || RegistryOf(o) != name {
			t.Errorf("Tie() makes the owners %+v, and the registry is %q", o.OwnerReferences, RegistryOf(o))
		}
		Untie(o, name)
		if Existing(o).Tied || len(o.OwnerReferences) != 1 || o.OwnerReferences[0] != other || RegistryOf(o) != name {
			t.Errorf("Untie() leaves the owners %+v, and the registry is %q", o.OwnerReferences, RegistryOf(o))
		}
		Tie(o, registry)
		if diff := cmp.Diff(tied, o, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("a tie that was made again differs (-first +then):\n%s", diff)
		}
	}
}

// The label of a long name has a hash of it, and the owner has the name; an owner
// that the label does not mean is not asked.
func TestRegistryOf(t *testing.T) {
	yes, long := true, strings.Repeat("a", 100)
	for name, tt := range map[string]struct{ label, owner, want string }{
		"by its label":           {"reg", "", "reg"},
		"of a long name":         {tenant.Label(long), long, long},
		"owned by somebody else": {"reg", "other", "reg"},
		"of no registry":         {"", "", ""},
	} {
		o := &tenantsv1.Tenant{}
		if tt.label != "" {
			o.Labels = map[string]string{tenantsv1.LabelRegistry: tt.label}
		}
		if tt.owner != "" {
			o.OwnerReferences = []metav1.OwnerReference{{Kind: tenantsv1.RegistryKind, Name: tt.owner, Controller: &yes}}
		}
		if got := RegistryOf(o); got != tt.want {
			t.Errorf("a tenant %s has the registry %q, want %q", name, got, tt.want)
		}
	}
}

// A typing error protects, and only a word for false does not.
func TestProtected(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "True": true, "yes": true, "ture": true, "1": true, "": false, "false": false, "False": false, "no": false, "0": false} {
		if got := Protected(map[string]string{tenantsv1.AnnotationDeletionProtection: value}); got != want {
			t.Errorf("with %q, Protected() = %v, want %v", value, got, want)
		}
	}
	if Protected(nil) {
		t.Error("without the annotation, Protected() = true, want false")
	}
}

package tenants

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// generation waits until exactly n tenants have a generation of the template.
func (o *office) generation(when string, generation int64, n int) {
	o.t.Helper()
	o.eventually(when, func() error {
		var have []string
		for name, t := range o.tenants() {
			if generationOf(&t) == generation {
				have = append(have, name)
			}
		}
		if slices.Sort(have); len(have) != n {
			return fmt.Errorf("%v have generation %d, want %d: %+v", have, generation, n, o.web().Status.Rollout)
		}
		return nil
	})
}

// are makes some tenants ready or failed as they are now.
func (o *office) are(ready bool, names ...string) {
	o.t.Helper()
	for _, name := range names {
		t := o.tenants()[name]
		if err := o.say(o.t.Context(), &t, ready); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *office) phase(want string) *tenantsv1.RolloutStatus {
	o.t.Helper()
	var r *tenantsv1.RolloutStatus
	o.eventually("the rollout is "+want, func() error {
		if r = o.web().Status.Rollout; r == nil || r.Phase != want {
			return fmt.Errorf("it is %+v", r)
		}
		return nil
	})
	return r
}

// L-04: one tenant that fails stops the rollout, and no row behind it.
func TestARolloutStopsAndIsResumed(t *testing.T) {
	o := newOffice(t)
	o.insert(4)
	o.open()
	o.sync()
	o.are(true, "a000-web", "a001-web", "a002-web", "a003-web")
	o.phase(tenantsv1.RolloutComplete)
	o.template("rollout: {maxSkew: 1}", "serviceAccountName: other")
	o.generation("the first has it", 2, 1)
	o.phase(tenantsv1.RolloutInProgress) // seen under way before it fails, or nothing is told of the limit
	o.are(false, "a000-web")
	r := o.phase(tenantsv1.RolloutFailed)
	if r.GoodGeneration != 1 || r.UpdatedNodes != 1 || r.FailedNodes != 1 || !strings.Contains(r.Message, "a000-web") {
		t.Errorf("the rollout is %+v", r)
	}
	o.eventually("it is told once", func() error { // after the status
		if o.heard.count("RolloutFailed") != 1 || o.heard.count("RolloutThrottled") != 1 {
			return fmt.Errorf("told: %v", o.heard.all)
		}
		return nil
	})
	o.set("new", "https://new.example.com", "1", "gold")
	o.sync()
	o.eventually("the new row has its tenant, of the good generation", func() error {
		n, ok := o.tenants()["new-web"]
		if !ok {
			return fmt.Errorf("it is not there")
		}
		if generationOf(&n) != 1 || n.Spec.ServiceAccountName != "" {
			t.Fatalf("it has generation %d and the account %q", generationOf(&n), n.Spec.ServiceAccountName)
		}
		return nil
	})
	o.annotate(o.web(), tenantsv1.AnnotationRollout, tenant.ResumeRollout(2, 1))
	o.generation("after it was resumed the next has it", 2, 2)
	o.tenantsAreReady()
	o.generation("when nothing fails any more all have it", 2, 5)
	if r := o.phase(tenantsv1.RolloutComplete); r.GoodGeneration != 2 || r.CompletionTime == nil {
		t.Errorf("the rollout is %+v", r)
	}
}

func TestAnInvalidTemplateSaysSoAndReachesNoTenant(t *testing.T) {
	o := newOffice(t)
	o.insert(1)
	o.open()
	o.sync()
	o.wantCondition(o.ofTemplate, "Valid", metav1.ConditionTrue, "ValidationPassed")
	o.template(`secrets: [{id: a, dependIds: [b], spec: {apiVersion: v1, kind: Secret}}, {id: b, dependIds: [a], spec: {apiVersion: v1, kind: Secret}}]`)
	o.wantCondition(o.ofTemplate, "Valid", metav1.ConditionFalse, "ValidationFailed")
	o.set("b", "https://b.example.com", "1", "gold")
	o.sync()
	for name, tn := range o.tenants() {
		if generationOf(&tn) != 1 || tn.Spec.Secrets != nil {
			t.Errorf("%s has generation %d", name, generationOf(&tn))
		}
	}
	o.eventually("both are told once", func() error { // after the status
		if o.heard.count("ValidationPassed") != 1 || o.heard.count("ValidationFailed") != 1 || o.heard.count("DependencyValidationFailed") != 1 {
			return fmt.Errorf("told: %v", o.heard.all)
		}
		return nil
	})
	o.template(`secrets: [{id: config, nameTemplate: b, spec: {apiVersion: v1, kind: Secret}}]`)
	o.eventually("that an id is used twice is told, by its name and once", func() error {
		if n, m := o.heard.count("DuplicateResourceIDs"), o.heard.count("ValidationFailed"); n != 1 || m != 2 {
			return fmt.Errorf("it was told %d times, and that the template is not valid %d times", n, m)
		}
		return nil
	})
}

// A Tenant that Tenant Operator rendered, and whose row has an error, is left as it is: the
// rollout of the others goes on without it, and ends.
func TestARolloutLeavesOutWhatIsNotTakenOver(t *testing.T) {
	o := newOffice(t)
	o.insert(2)
	o.set("a000", "", "1", "gold") // hostOrUrl is empty
	o.open()
	o.sync()
	o.wantTenants("with one good row", "a001-web")
	old := &tenantsv1.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: "a000-web", Labels: map[string]string{tenantsv1.LabelRegistry: "reg", tenantsv1.LabelUID: "a000"},
			Annotations: map[string]string{tenantsv1.AnnotationTemplateGeneration: "1"},
		},
		Spec: tenantsv1.TenantSpec{UID: "a000", TemplateRef: "web"},
	}
	if err := o.Client.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	o.template("serviceAccountName: other")
	o.generation("the other one has the new template", 2, 1)
	o.tenantsAreReady()
	o.eventually("the rollout is complete", func() error {
		if r := o.web().Status.Rollout; r.Phase != tenantsv1.RolloutComplete || r.GoodGeneration != 2 || r.TotalNodes != 1 || r.Message != tenant.LeftOut(1) {
			return fmt.Errorf("it is %+v", r)
		}
		return nil
	})
	c := o.wantCondition(o.ofTemplate, "Applied", metav1.ConditionFalse, "NotAllTenantsReady")
	if !strings.HasSuffix(c.Message, ". "+tenant.LeftOut(1)) {
		t.Errorf("the message is %q, want that it names the tenant that is left out", c.Message)
	}
}

func TestATemplateWithoutItsRegistry(t *testing.T) {
	o := newOffice(t)
	o.template()
	o.wantCondition(o.ofTemplate, "Valid", metav1.ConditionFalse, "RegistryNotFound")
	o.open()
	o.wantCondition(o.ofTemplate, "Valid", metav1.ConditionTrue, "ValidationPassed")
}

func TestDeletingATemplate(t *testing.T) {
	o := newOffice(t)
	o.insert(12)
	o.open()
	o.sync()
	if err := o.Client.Delete(t.Context(), o.web()); err != nil {
		t.Fatal(err)
	}
	o.wantCondition(o.ofTemplate, "Applied", metav1.ConditionFalse, "TooManyDeletions")
	if n := len(o.tenants()); n != 12 {
		t.Errorf("%d of 12 tenants are left", n)
	}
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, o.registry().Status.Blocked.Token)
	o.wantTenants("after it was allowed")
	o.eventually("the template is gone", func() error {
		err := o.Client.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: "web"}, &tenantsv1.TenantTemplate{})
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

func TestOldGenerationsAreKept(t *testing.T) {
	o := newOffice(t)
	o.open()
	for i := 2; i <= generationsKept+3; i++ {
		o.template(fmt.Sprintf("serviceAccountName: a%d", i))
		o.eventually("it is reported on", func() error {
			if g := o.web().Status.ObservedGeneration; g != int64(i) {
				return fmt.Errorf("generation %d is", g)
			}
			return nil
		})
	}
	o.eventually("the last ten are there", func() error {
		var list appsv1.ControllerRevisionList
		if err := o.Client.List(t.Context(), &list, client.InNamespace(o.Namespace), client.MatchingLabels{tenantapi.LabelTemplate: "web"}); err != nil {
			return err
		}
		if len(list.Items) != generationsKept {
			return fmt.Errorf("%d are", len(list.Items))
		}
		return nil
	})
	s, err := (&revisions{live: o.Client}).spec(t.Context(), o.web(), 5)
	if err != nil || s.ServiceAccountName != "a5" {
		t.Errorf("generation 5 is %+v, %v", s, err)
	}
}

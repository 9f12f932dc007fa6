package command_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestListAndWatch(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	for selector, want := range map[string]int{"": 1, "team=net": 1, "team=other": 0} {
		list, err := s.List(t.Context(), query.Filter{Namespace: c.Namespace, Selector: selector})
		if err != nil || len(list) != want {
			t.Errorf("List(%q) = %d stacks, %v; want %d", selector, len(list), err, want)
		}
	}
	if _, err := s.List(t.Context(), query.Filter{Selector: "=="}); fault.Of(err) != fault.Invalid {
		t.Errorf("List() with a selector that is none is %v, want it to be invalid", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var got []string
	for change, err := range s.Watch(ctx, query.Filter{Namespace: c.Namespace, Name: "net"}) {
		if err != nil {
			t.Fatal(err)
		}
		if change.Gone {
			got = append(got, "gone")
			break
		}
		got = append(got, change.Phase)
		switch change.Phase {
		case "":
			c.status(func(s *v1alpha2.TerraformStatus) { s.Terrier = &v1alpha2.TerrierStatus{Phase: "Planning"} })
		case "Planning":
			if err := c.kube.Delete(t.Context(), c.object()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(got, []string{"", "Planning", "gone"}); diff != "" {
		t.Errorf("Watch() (-got +want):\n%s", diff)
	}
}

func TestOutputs(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	if _, err := s.Outputs(t.Context(), c.key(), true); fault.Of(err) != fault.Missing {
		t.Errorf("Outputs() before they are written is %v, want them to be missing", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "net-outputs", Annotations: map[string]string{"terrier.dev/public-outputs": "id,zones"}},
		Data:       map[string][]byte{"id": []byte("vpc-1"), "zones": []byte(`["a"]`), "zones__type": []byte(`["list","string"]`), "password": []byte("hunter22")},
	}
	if err := c.kube.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	text := func(show bool) string {
		t.Helper()
		list, err := s.Outputs(t.Context(), c.key(), show)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, o := range list {
			lines = append(lines, o.Name+"="+string(o.Value))
		}
		return strings.Join(lines, " ")
	}
	if got, want := text(false), `id="vpc-1" password= zones=["a"]`; got != want {
		t.Errorf("Outputs() = %s, want %s", got, want)
	}
	if got, want := text(true), `id="vpc-1" password="hunter22" zones=["a"]`; got != want {
		t.Errorf("Outputs() shown = %s, want %s", got, want)
	}
	known := plan.Remembered{Key: []byte("k")}
	known.Add([]string{"vpc-1"})
	raw, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	c.records[record.Secrets(string(c.object().UID))] = string(raw)
	if got, want := text(false), `id= password= zones=["a"]`; got != want {
		t.Errorf("Outputs() once an identifier came from a Secret = %s, want %s", got, want)
	}
	if got, want := text(true), `id="vpc-1" password="hunter22" zones=["a"]`; got != want {
		t.Errorf("Outputs() shown = %s, want %s", got, want)
	}
	c.records[record.Secrets(string(c.object().UID))] = "damaged"
	if got, want := text(false), `id= password= zones=`; got != want {
		t.Errorf("Outputs() while it is not known what came from Secrets = %s, want %s", got, want)
	}
	list, err := s.Outputs(t.Context(), c.key(), false)
	if err != nil || !strings.Contains(list[0].Masked, "did not say which values came from Secrets") || list[1].Masked != "" {
		t.Errorf("Outputs() = %+v, %v; want the reason why the public ones are masked", list, err)
	}
	if got, want := text(true), `id="vpc-1" password="hunter22" zones=["a"]`; got != want {
		t.Errorf("Outputs() shown while it is not known = %s, want %s", got, want)
	}
	secret.Annotations = nil
	if err := c.kube.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if got, want := text(false), `id= password= zones=`; got != want {
		t.Errorf("Outputs() of somebody who does not say what is public = %s, want %s", got, want)
	}
}

func TestDescribeShowsEvents(t *testing.T) {
	c := newCluster(t)
	o := c.object()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: c.Namespace, Name: "net.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Terraform", Namespace: c.Namespace, Name: "net", UID: o.UID},
		Reason:         "Planned", Message: "Planned.", Type: "Normal", LastTimestamp: metav1.NewTime(noon),
	}
	if err := c.kube.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	c.status(waits(t, shown.Name, shown.Digest))
	d, err := c.stacks(interceptor.Funcs{}).Describe(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Events) != 1 || d.Events[0].Reason != "Planned" || d.Plan == nil || d.Plan.Digest != shown.Digest || d.Means.Do == "" {
		t.Errorf("Describe() = %+v, want the event, the plan and what to do", d)
	}
}

// An object that upstream's controller left has no memory of ours.
func TestViewOfAnAdoptedStack(t *testing.T) {
	c := newCluster(t)
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Plan.Pending, s.LastAppliedRevision = "plan-main-0000000000", "main@sha1:1"
	})
	st, err := c.stacks(interceptor.Funcs{}).Get(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if st.Pending != "plan-main-0000000000" || st.Plan != nil || st.Revision != "main@sha1:1" {
		t.Errorf("Get() = %+v, want the name of the plan and nothing made up", st)
	}
}

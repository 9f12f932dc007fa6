package children

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestTypesOfFields(t *testing.T) {
	l := newLab(t)
	for _, tt := range []struct {
		apiVersion, kind, path string
		want                   tenant.Type
	}{
		{"apps/v1", "Deployment", "spec.replicas", tenant.Integer},
		{"apps/v1", "Deployment", "spec.paused", tenant.Boolean},
		{"apps/v1", "Deployment", "spec.template.spec.containers.[].ports.[].containerPort", tenant.Integer},
		{"apps/v1", "Deployment", "metadata.labels.tier", tenant.Text},
		{"v1", "Service", "spec.ports.[].targetPort", tenant.IntOrString},
		{"v1", "ConfigMap", "data.port", tenant.Text},
		{"v1", "ConfigMap", "data.port.below", tenant.Unknown},
		{"infra.contrib.fluxcd.io/v1alpha2", "Terraform", "spec.destroyResourcesOnDeletion", tenant.Boolean},
		{"infra.contrib.fluxcd.io/v1alpha2", "Terraform", "spec.approvePlan", tenant.Text},
		{"infra.contrib.fluxcd.io/v1alpha2", "Terraform", "spec.vars.[].value", tenant.Unknown},
		{"v1", "ConfigMap", "nothing.of.it", tenant.Unknown},
		{"v1", "Nothing", "spec", tenant.Unknown},
		{"example.com/v1", "ConfigMap", "data.port", tenant.Unknown},
	} {
		if got := l.cluster.Types().At(tt.apiVersion, tt.kind, strings.Split(tt.path, ".")); got != tt.want {
			t.Errorf("At(%s %s %s) = %v, want %v", tt.apiVersion, tt.kind, tt.path, got, tt.want)
		}
	}
	for kind, want := range map[string][2]bool{"ConfigMap": {true, true}, "Namespace": {false, true}, "Nothing": {false, false}} {
		if namespaced, known := l.cluster.Types().IsNamespaced("v1", kind); namespaced != want[0] || known != want[1] {
			t.Errorf("IsNamespaced(%s) = %v, %v, want %v", kind, namespaced, known, want)
		}
	}
}

// A kind may come after the first question for it, and go again.
func TestTypesOfAKindThatComesAndGoes(t *testing.T) {
	l := newLab(t)
	now := time.Now()
	l.cluster.types.now = func() time.Time { now = now.Add(schemasRetry + 1); return now } // time passes from one question to the next
	group := fmt.Sprintf("g%d.example.com", time.Now().UnixNano())
	at := func() tenant.Type { return l.cluster.Types().At(group+"/v1", "Late", []string{"spec", "size"}) }
	if got := at(); got != tenant.Unknown {
		t.Errorf("At() of a kind that is not there = %v, want unknown", got)
	}
	key := Key{Group: group, Version: "v1", Kind: "Late", Namespace: l.Namespace, Name: "a"}
	if _, err := l.cluster.Read(t.Context(), key, l.owner); !meta.IsNoMatchError(err) {
		t.Errorf("Look() at a kind that is not there = %v, want no match", err)
	}
	crd := l.Apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lates.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {plural: lates, singular: late, kind: Late, listKind: LateList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`)
	testkit.Eventually(t, soon, "the schema is known", func(context.Context) error {
		if got := at(); got != tenant.Integer {
			return fmt.Errorf("At() = %v", got)
		}
		return nil
	})
	if live, err := l.cluster.Read(t.Context(), key, l.owner); err != nil || live.Exists {
		t.Errorf("Look() = %+v, %v, want nothing there", live, err)
	}
	if err := l.Client.Delete(t.Context(), crd[0]); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, "the kind is gone", func(ctx context.Context) error {
		if _, err := l.cluster.Read(ctx, key, l.owner); !meta.IsNoMatchError(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// held lets requests for the schemas of one group wait.
type held struct {
	group          string
	arrived, letGo chan struct{}
	next           http.RoundTripper
}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, h.group) {
		h.arrived <- struct{}{}
		<-h.letGo
	}
	return h.next.RoundTrip(r)
}

// A slow schema delays no caller that wants another one, and is requested once for
// all callers.
func TestSlowSchemasDelayNoOther(t *testing.T) {
	config := rest.CopyConfig(testkit.Kube(t).Config)
	h := held{group: "/apis/batch/v1", arrived: make(chan struct{}, 8), letGo: make(chan struct{})}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { h.next = next; return h })
	cluster, err := New(Config{REST: config})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan tenant.Type, 4)
	for range cap(got) {
		go func() { got <- cluster.Types().At("batch/v1", "Job", []string{"spec", "parallelism"}) }()
	}
	<-h.arrived
	if got := cluster.Types().At("v1", "ConfigMap", []string{"data", "a"}); got != tenant.Text {
		t.Errorf("At() while another group is slow = %v, want text", got)
	}
	close(h.letGo)
	for range cap(got) {
		if got := <-got; got != tenant.Integer {
			t.Errorf("At() of the slow group = %v, want integer", got)
		}
	}
	if n := len(h.arrived); n != 0 {
		t.Errorf("it was asked for %d more times, want once in all", n)
	}
}

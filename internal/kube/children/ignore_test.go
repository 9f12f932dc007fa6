package children

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A field that others scale is theirs: following it costs no write, and a change
// of the template does not take it back.
func TestScalingCostsNoWrite(t *testing.T) {
	l := newLab(t)
	key, w := l.key("Deployment", "web"), l.want(deployment, ignoring("$.spec.replicas"))
	l.write(w)
	for _, n := range []string{"3", "5"} {
		l.patchAs("autoscaler", key, `{"spec":{"replicas":`+n+`}}`)
		l.asked()
		if live := l.write(w); live.Change != Unchanged || l.asked() != "GET" {
			t.Errorf("Write() after scaling to %s is %q, want no write", n, live.Change)
		}
	}
	if got, _, _ := unstructured.NestedInt64(l.live(key).Object, "spec", "replicas"); got != 5 {
		t.Errorf("replicas are %d, want 5", got)
	}
}

// pod is a Deployment with these containers, each as name=image.
func pod(containers ...string) string {
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n"
	for _, c := range containers {
		name, image, _ := strings.Cut(c, "=")
		text += fmt.Sprintf("      - {name: %s, image: %q}\n", name, image)
	}
	return text
}

// images are the containers of a Deployment, as pod takes them.
func images(u *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	var all []string
	for _, c := range list {
		m := c.(map[string]any)
		all = append(all, fmt.Sprintf("%s=%s", m["name"], m["image"]))
	}
	return all
}

// roll sets the images of a Deployment, as a manager of images does.
func (l *lab) roll(key Key, containers ...string) {
	l.t.Helper()
	var list []string
	for _, c := range containers {
		name, image, _ := strings.Cut(c, "=")
		list = append(list, fmt.Sprintf(`{"name":%q,"image":%q}`, name, image))
	}
	l.patchAs("roller", key, `{"spec":{"template":{"spec":{"containers":[`+strings.Join(list, ",")+`]}}}}`)
}

// No container ever runs the image of another, however the template changes: the
// server says which fields identify an element.
func TestIgnoredImagesStayWithTheirContainers(t *testing.T) {
	for _, how := range []struct {
		name  string
		write []func(*Write)
	}{
		{"apply", nil},
		{"apply by force", []func(*Write){force}},
		{"merge by force", []func(*Write){by(tenant.Merge), force}},
		{"replace by force", []func(*Write){by(tenant.Replace), force}},
	} {
		t.Run(how.name, func(t *testing.T) {
			l := newLab(t)
			key := l.key("Deployment", "web")
			change := append(slices.Clone(how.write), ignoring("$.spec.template.spec.containers[*].image"))
			l.write(l.want(pod("a=a:1", "b=b:1"), change...))
			l.roll(key, "a=a:2", "b=b:2")
			for _, step := range []struct{ template, want []string }{
				{[]string{"b=b:1", "a=a:1"}, []string{"a=a:2", "b=b:2"}},
				{[]string{"c=c:1", "b=b:1", "a=a:1"}, []string{"a=a:2", "b=b:2", "c=c:1"}},
				{[]string{"b=b:1", "c=c:3"}, []string{"b=b:2", "c=c:1"}},
			} {
				l.write(l.want(pod(step.template...), change...))
				got := images(l.live(key))
				if strings.HasPrefix(how.name, "apply") && !slices.ContainsFunc(step.template, func(c string) bool { return c == "a=a:1" }) {
					got = slices.DeleteFunc(got, func(c string) bool { return c == "a=a:2" }) // the roller owns some of it, so the server keeps it
				}
				slices.Sort(got)
				if diff := cmp.Diff(got, step.want); diff != "" {
					t.Errorf("after %v the containers are (-got +want):\n%s", step.template, diff)
				}
			}
			l.asked()
			if live := l.write(l.want(pod("b=b:1", "c=c:3"), change...)); live.Change != Unchanged {
				t.Errorf("another Write() of the same is %q, want no change", live.Change)
			}
		})
	}
}

// An index is a place in the template, and its element keeps its own image.
func TestIgnoredIndexIsAPlaceInTheTemplate(t *testing.T) {
	l := newLab(t)
	key, change := l.key("Deployment", "web"), []func(*Write){force, ignoring("$.spec.template.spec.containers[0].image")}
	l.write(l.want(pod("a=a:1", "b=b:1"), change...))
	l.roll(key, "a=a:2", "b=b:2")
	l.write(l.want(pod("b=b:1", "a=a:1"), change...))
	got := images(l.live(key))
	slices.Sort(got)
	if diff := cmp.Diff(got, []string{"a=a:1", "b=b:2"}); diff != "" {
		t.Errorf("the containers are (-got +want):\n%s", diff)
	}
}

// Keys are what the server says they are, in lists of lists and with parts that the
// template leaves out.
func TestKeysOfLists(t *testing.T) {
	l := newLab(t)
	group := fmt.Sprintf("k%d.example.com", time.Now().UnixNano())
	l.Apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: farms.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {plural: farms, singular: farm, kind: Farm, listKind: FarmList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              fields:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [row, side]
                items: {type: object, required: [row], properties: {row: {type: integer}, side: {type: string, default: left}, crop: {type: string}}}
              plain: {type: array, items: {type: object, properties: {a: {type: string}}}}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
`)
	testkit.Eventually(t, soon, "the schema is known", func(context.Context) error {
		if got := l.cluster.Types().At(group+"/v1", "Farm", []string{"spec", "fields", "[]", "row"}); got != tenant.Integer {
			return errors.New("it is not")
		}
		return nil
	})
	for _, tt := range []struct {
		apiVersion, kind, path string
		want                   tenant.List
	}{
		{"apps/v1", "Deployment", "spec.template.spec.containers", tenant.List{Known: true, Keys: []tenant.ListKey{{Name: "name"}}}},
		{"apps/v1", "Deployment", "spec.template.spec.containers.[].ports", tenant.List{Known: true, Keys: []tenant.ListKey{{Name: "containerPort"}, {Name: "protocol", Default: "TCP"}}}},
		{"apps/v1", "Deployment", "spec.template.spec.containers.[].volumeMounts", tenant.List{Known: true, Keys: []tenant.ListKey{{Name: "mountPath"}}}},
		{"apps/v1", "Deployment", "spec.template.spec.containers.[].args", tenant.List{Known: true}},
		{"apps/v1", "Deployment", "spec.template.spec.tolerations", tenant.List{Known: true}},
		{"v1", "Service", "spec.ports", tenant.List{Known: true, Keys: []tenant.ListKey{{Name: "port"}, {Name: "protocol", Default: "TCP"}}}},
		{"networking.k8s.io/v1", "Ingress", "spec.rules", tenant.List{Known: true}},
		{group + "/v1", "Farm", "spec.fields", tenant.List{Known: true, Keys: []tenant.ListKey{{Name: "row"}, {Name: "side", Default: "left"}}}},
		{group + "/v1", "Farm", "spec.plain", tenant.List{Known: true}},
		{group + "/v1", "Farm", "spec.set", tenant.List{Known: true}},
		{group + "/v1", "Farm", "spec.unknown", tenant.List{Known: true}},
		{group + "/v1", "Nothing", "spec.fields", tenant.List{}},
	} {
		if diff := cmp.Diff(l.cluster.Types().List(tt.apiVersion, tt.kind, strings.Split(tt.path, ".")), tt.want); diff != "" {
			t.Errorf("List(%s %s %s) (-got +want):\n%s", tt.apiVersion, tt.kind, tt.path, diff)
		}
	}

	farm := func(spec, ignored string) Write {
		return l.want("{apiVersion: "+group+"/v1, kind: Farm, metadata: {name: a}, spec: {"+spec+"}}", ignoring(ignored))
	}
	key := Key{Group: group, Version: "v1", Kind: "Farm", Namespace: l.Namespace, Name: "a"}
	l.write(farm("fields: [{row: 1, crop: oats}, {row: 1, side: right, crop: rye}]", "$.spec.fields[*].crop"))
	l.patchAs("farmer", key, `{"spec":{"fields":[{"row":1,"side":"left","crop":"left"},{"row":1,"side":"right","crop":"right"}]}}`)
	l.write(farm("fields: [{row: 2, crop: new}, {row: 1, side: right, crop: rye}, {row: 1, crop: oats}]", "$.spec.fields[*].crop"))
	got, _, _ := unstructured.NestedSlice(l.live(key).Object, "spec", "fields")
	crops := map[string]any{}
	for _, f := range got {
		m := f.(map[string]any)
		crops[fmt.Sprint(m["row"], m["side"])] = m["crop"]
	}
	if diff := cmp.Diff(crops, map[string]any{"1left": "left", "1right": "right", "2left": "new"}); diff != "" {
		t.Errorf("the crops are (-got +want):\n%s", diff)
	}

	for ignored, want := range map[string]string{
		"$.spec.plain[*].a":   "ignoreFields[0]: $.spec.plain[*].a: the elements of spec.plain have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.spec.plain",
		"$.spec.set[*]":       "ignoreFields[0]: $.spec.set[*]: the elements of spec.set have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.spec.set",
		"$.spec.unknown[*].a": "ignoreFields[0]: $.spec.unknown[*].a: the elements of spec.unknown have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.spec.unknown",
	} {
		w := farm("plain: [{a: x}], set: [x], unknown: [{a: x}]", ignored)
		unstructured.SetNestedField(w.Object, "new", "metadata", "name")
		_, err := l.cluster.Write(t.Context(), w)
		if err == nil || err.Error() != want || fault.Of(err) != fault.Invalid {
			t.Errorf("Write() with %s is %v (%v), want it refused with %q", ignored, err, fault.Of(err), want)
		}
		w.Absent = true
		if _, err := l.cluster.Write(t.Context(), w); err == nil {
			t.Errorf("Write() of a new object with %s is accepted, want it refused before it exists", ignored)
		}
	}
}

package children

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestIgnoredFieldsAreKept(t *testing.T) {
	const desired = "{meta: {annotations: {a/x: ours, b: ours}}, list: [{name: a, image: ours}, {name: b, image: ours}, {name: c, image: ours}]}"
	const live = "{meta: {annotations: {a/x: theirs, b: theirs, c: theirs}}, list: [{name: a, image: theirs}, {name: b, image: theirs}], spec: {replicas: 7}}"
	for entry, want := range map[string]string{
		"$.meta.annotations['a/x']": "{meta: {annotations: {a/x: theirs, b: ours}}, list: [{name: a, image: ours}, {name: b, image: ours}, {name: c, image: ours}]}",
		"$.meta.annotations":        "{meta: {annotations: {a/x: theirs, b: theirs, c: theirs}}, list: [{name: a, image: ours}, {name: b, image: ours}, {name: c, image: ours}]}",
		"$.meta.annotations.*":      "{meta: {annotations: {a/x: theirs, b: theirs, c: theirs}}, list: [{name: a, image: ours}, {name: b, image: ours}, {name: c, image: ours}]}",
		"$.list[0].image":           "{meta: {annotations: {a/x: ours, b: ours}}, list: [{name: a, image: theirs}, {name: b, image: ours}, {name: c, image: ours}]}",
		"$.list[1]":                 "{meta: {annotations: {a/x: ours, b: ours}}, list: [{name: a, image: ours}, {name: b, image: theirs}, {name: c, image: ours}]}",
		"$.list[*].image":           "{meta: {annotations: {a/x: ours, b: ours}}, list: [{name: a, image: theirs}, {name: b, image: theirs}, {name: c, image: ours}]}",
		"$.list[9].image":           desired,
		"$.spec.replicas":           "{spec: {replicas: 7}, meta: {annotations: {a/x: ours, b: ours}}, list: [{name: a, image: ours}, {name: b, image: ours}, {name: c, image: ours}]}",
		"$.spec.nothing":            desired,
		"$.meta.nothing.at.all":     desired,
	} {
		all, err := paths([]string{entry})
		if err != nil {
			t.Fatal(err)
		}
		object, as := parsed(t, desired), parsed(t, live)
		all[0].keep(object, as)
		if diff := cmp.Diff(object, parsed(t, want)); diff != "" {
			t.Errorf("%s (-got +want):\n%s", entry, diff)
		}
		all[0].drop(object)
		if diff := cmp.Diff(as, parsed(t, live)); diff != "" {
			t.Errorf("%s has changed the object that is there (-got +want):\n%s", entry, diff)
		}
	}
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

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

package tenant

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func said(errs []ResourceError) []string {
	var all []string
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// Everything that is wrong is said at once.
func TestCheckFindsEverything(t *testing.T) {
	template := Template{Resources: []Resource{
		{ID: "a", Group: "deployments", NameTemplate: "{{ .uid", DependIDs: []string{"b", "nope"}, Object: parse(t, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"x":["{{ .plan }}",{"y":"{{ env \"A\" }}"}]}}`)},
		{ID: "b", Group: "services", NameTemplate: "b", DependIDs: []string{"a"}, LabelsTemplate: map[string]string{"not a key": "{{ .plan }}"}, Object: parse(t, `{"apiVersion":"v1","kind":"{{ .kind }}","metadata":{"generateName":"x","labels":{"-":"x","a":"b c","not a key":"{{"},"namespace":"{{ .nowhere }}","name":"{{ .either }}"}}`)},
		{ID: "b", Group: "manifests", NameTemplate: "UP", TargetNamespace: "a.b", ReadyWhen: "object.", IncludeWhen: "object.x", IgnoreFields: []string{"$.spec.replicas", "$.a[0", ""}, Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)},
		{Group: "manifests", Object: parse(t, `{}`)},
	}}
	want := []string{
		"b: id: the id is used twice, in services and in manifests",
		"a resource of manifests has no id",
		`a: dependIds: there is no resource "nope"`,
		"a: dependIds: the resources depend on one another: a → b → a",
		"a: nameTemplate: unclosed action",
		"a: spec.spec.x[0]: there is no variable plan; the variables are uid",
		"a: spec.spec.x[1].y: the function env is refused: it reads the machine that renders",
		"b: spec: kind must not be a template: no row may choose the kind of an object",
		"b: spec: metadata.generateName cannot be set: each rendering would create another object",
		`b: spec.metadata.labels: "-" is not a valid key: letters, digits, - _ and . can be in it, and it must begin and end with a letter or a digit`,
		`b: spec.metadata.labels.a: "b c" is not a valid label value: letters, digits, - _ and . can be in it, and it must begin and end with a letter or a digit`,
		`b: labelsTemplate: "not a key" is not a valid key: letters, digits, - _ and . can be in it, and it must begin and end with a letter or a digit`,
		"b: labelsTemplate.not a key: there is no variable plan; the variables are uid",
		`b: nameTemplate: "UP" is not a valid name of a ConfigMap: it has capital letters; the function lower converts them`,
		`b: targetNamespace: "a.b" is not a valid name of a namespace: only small letters, digits and - can be in it`,
		"b: readyWhen: line 1, column 8: Syntax error: no viable alternative at input '.'",
		"b: includeWhen: line 1, column 1: undeclared reference to 'object' (in container '')",
		`b: ignoreFields[1]: "$.a[0" is no path from "[0" on: write it like $.spec.replicas, $.spec.template.spec.containers[*].image or $.metadata.annotations['example.com/a']`,
		"b: ignoreFields[2]: it is empty",
		"apiVersion is missing",
		"kind is missing",
		"the object has no name: there is neither nameTemplate nor metadata.name",
	}
	if diff := cmp.Diff(want, said(Check(template, []string{"uid"}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Variables of extraValueMappings work in every template (L-01, D-16), and one
// that is not mapped does where it may be missing (L-06).
func TestCheckKnowsVariables(t *testing.T) {
	template := Template{Resources: []Resource{{
		ID: "a", NameTemplate: "{{ .planId | trunc63 }}", LabelsTemplate: map[string]string{"plan": "{{ .planId }}", "tier": `{{ .tier | default "none" }}`}, AnnotationsTemplate: map[string]string{"host": "{{ .url | toHost }}"},
		Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"{{ if .tier }}{{ .tier }}{{ end }}"}}`),
	}}}
	for name, tt := range map[string]struct {
		vars []string
		want []string
	}{
		"nobody knows them yet": {nil, nil},
		"all are mapped":        {[]string{"planId", "uid", "url"}, nil},
		"one is not":            {[]string{"planId", "uid"}, []string{"a: annotationsTemplate.host: there is no variable url; the variables are planId, uid"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, said(Check(template, tt.vars))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckFindsTheSameObject(t *testing.T) {
	r := func(id, api, name, namespace, when string) Resource {
		return Resource{ID: id, NameTemplate: name, TargetNamespace: namespace, IncludeWhen: when, Object: map[string]any{"apiVersion": api, "kind": "Job"}}
	}
	template := Template{Resources: []Resource{
		r("a", "batch/v1", "{{ .uid }}", "", ""), r("b", "batch/v1beta1", "{{ .uid }}", "", ""),
		r("c", "batch/v1", "{{ .uid }}", "other", ""), r("d", "other/v1", "{{ .uid }}", "", ""), r("e", "batch/v1", "{{ .uid }}", "", `row.uid == "x"`),
	}}
	if diff := cmp.Diff([]string{"b: nameTemplate: it is the same Job as the one of a"}, said(Check(template, nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func ids(all []Resource) []string {
	var names []string
	for _, r := range all {
		names = append(names, r.ID)
	}
	return names
}

func TestOrder(t *testing.T) {
	all := []Resource{
		{ID: "z", Group: "manifests"}, {ID: "y", Group: "manifests"}, {ID: "app", Group: "deployments", DependIDs: []string{"z", "svc"}},
		{ID: "svc", Group: "services"}, {ID: "cm", Group: "configMaps", DependIDs: []string{"y"}}, {ID: "last", Group: "serviceAccounts", DependIDs: []string{"app"}},
		{ID: "new", Group: "a group of tomorrow"},
	}
	got, err := Order(all)
	if want := []string{"svc", "z", "y", "new", "app", "cm", "last"}; err != nil || !slices.Equal(ids(got), want) {
		t.Errorf("Order() = %v, %v; want %v", ids(got), err, want)
	}
	_, err = Order([]Resource{{ID: "a", DependIDs: []string{"a"}}})
	if err == nil || err.Error() != "a: dependIds: the resources depend on one another: a → a" {
		t.Errorf("Order() error = %v", err)
	}
}

// Whatever the graph, each comes after what it depends on, and the order is that
// of the levels, not of how the resources are shuffled within their groups.
func TestOrderHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		all := make([]Resource, n)
		for i := range all {
			all[i].ID, all[i].Group = string(rune('a'+i)), rapid.SampledFrom(groups).Draw(t, "group")
			for j := range i {
				if rapid.IntRange(0, 3).Draw(t, "depends") == 0 {
					all[i].DependIDs = append(all[i].DependIDs, all[j].ID)
				}
			}
		}
		shuffled := rapid.Permutation(all).Draw(t, "shuffled")
		ordered, err := Order(shuffled)
		if err != nil || len(ordered) != n {
			t.Fatalf("Order() = %v, %v", ids(ordered), err)
		}
		place := map[string]int{}
		for i, r := range ordered {
			place[r.ID] = i
		}
		for _, r := range all {
			for _, d := range r.DependIDs {
				if place[d] > place[r.ID] {
					t.Fatalf("%s comes after %s in %v", d, r.ID, ids(ordered))
				}
			}
		}
		// A way back makes it impossible, and the error goes around it.
		if last := all[n-1]; len(last.DependIDs) > 0 {
			first := slices.IndexFunc(shuffled, func(r Resource) bool { return r.ID == last.DependIDs[0] })
			shuffled[first].DependIDs = append(slices.Clone(shuffled[first].DependIDs), last.ID)
			if ordered, err := Order(shuffled); err == nil {
				t.Fatalf("Order() = %v, in spite of a cycle", ids(ordered))
			}
		}
	})
}

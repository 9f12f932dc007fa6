package tenant

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// parse reads what a test says an object is.
func parse(t testing.TB, s string) map[string]any {
	t.Helper()
	v, err := fromJSONText(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func fromJSONText(s string) (map[string]any, error) {
	var v map[string]any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		return nil, err
	}
	return whole(v).(map[string]any), nil
}

// whole has int64 for whole numbers, as objects do.
func whole(v any) any {
	switch v := v.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	}
	return v
}

// schemas is a Types of a few fields, by kind and path.
type schemas map[string]Type

func (s schemas) At(_, kind string, path []string) Type { return s[kind+" "+strings.Join(path, ".")] }

func (s schemas) List(string, string, []string) List { return List{Known: true} }

func config(t testing.TB, data string) Resource {
	return Resource{ID: "c", NameTemplate: "{{ .uid }}-c", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","data":`+data+`}`)}
}

func values(extra ...string) Values {
	v := ValuesOf(Row{UID: "acme", HostOrURL: "https://acme.example.com/x", Activate: "1"}, "reg", "tpl")
	for i := 0; i < len(extra); i += 2 {
		v[extra[i]] = extra[i+1]
	}
	return v
}

func TestRenderMakesObjects(t *testing.T) {
	types := schemas{
		"Deployment spec.replicas": Integer, "Deployment spec.paused": Boolean, "Deployment spec.share": Number, "Deployment spec.ports.[].port": IntOrString,
		"Deployment spec.note": Text, "Deployment spec.list.[].[]": Integer,
	}
	for name, tt := range map[string]struct {
		resource Resource
		extra    []string
		options  RenderOptions
		want     string
	}{
		"the namespace of the Tenant": {
			resource: Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"elsewhere"}}`)},
			want:     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"}}`,
		},
		"another namespace, and the spec's name": {
			resource: Resource{TargetNamespace: "t-{{ .uid }}", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ .uid }}-x"}}`)},
			want:     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"acme-x","namespace":"t-acme"}}`,
		},
		"an object of the cluster": {
			resource: Resource{NameTemplate: "{{ .uid }}", TargetNamespace: "x", Object: parse(t, `{"apiVersion":"v1","kind":"Namespace"}`)},
			want:     `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"acme"}}`,
		},
		"an object of the cluster that only the cluster knows": {
			resource: Resource{NameTemplate: "{{ .uid }}", Object: parse(t, `{"apiVersion":"x.io/v1","kind":"Planet"}`)},
			options:  RenderOptions{IsNamespaced: func(_, kind string) (bool, bool) { return false, kind == "Planet" }},
			want:     `{"apiVersion":"x.io/v1","kind":"Planet","metadata":{"name":"acme"}}`,
		},
		"labels and annotations are laid over those of the spec (D-03)": {
			resource: Resource{NameTemplate: "a", LabelsTemplate: map[string]string{"plan": "{{ .plan }}", "app": "over"}, AnnotationsTemplate: map[string]string{"note": "{{ .plan | upper }}"},
				Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"app":"{{ fail \"not looked at\" }}","tier":"{{ .uid }}"},"annotations":{"host":"{{ .host }}"},"finalizers":["x/y"]}}`)},
			extra: []string{"plan", "gold"},
			want:  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","labels":{"app":"over","plan":"gold","tier":"acme"},"annotations":{"host":"acme.example.com","note":"GOLD"},"finalizers":["x/y"]}}`,
		},
		"lists in lists, but no names of fields": {
			resource: Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"x.io/v1","kind":"Any","spec":{"{{ .uid }}":[["{{ .uid }}",1],[true,null,{"a":"{{ .n | int }}"}]]}}`)},
			extra:    []string{"n", "3"},
			want:     `{"apiVersion":"x.io/v1","kind":"Any","metadata":{"name":"a","namespace":"ns"},"spec":{"{{ .uid }}":[["acme",1],[true,null,{"a":3}]]}}`,
		},
		"the schema says what a text becomes": {
			resource: Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":"{{ .n }}","paused":"{{ .n | eq \"4\" }}","share":"{{ .share }}","ports":[{"port":"{{ .n }}"},{"port":"{{ .uid }}"}],"note":"{{ .n | int }}","list":[["{{ .n }} "]],"free":"{{ .n }}"}}`)},
			extra:    []string{"n", "3", "share", "0.5"}, options: RenderOptions{Types: types},
			want: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"ns"},"spec":{"replicas":3,"paused":false,"share":0.5,"ports":[{"port":3},{"port":"acme"}],"note":"3","list":[[3]],"free":"3"}}`,
		},
		"without a schema, the template does": {
			resource: Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":"{{ .n | int }}","text":"{{ .n }}","on":"{{ bool .n }}","half":"{{ divf (float .n) 2 }}","m":"{{ .n | int }}m","written":5}}`)},
			extra:    []string{"n", "1"},
			want:     `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"ns"},"spec":{"replicas":1,"text":"1","on":true,"half":0.5,"m":"1m","written":5}}`,
		},
		"texts stay texts in their places": {
			resource: Resource{NameTemplate: "a", LabelsTemplate: map[string]string{"n": "{{ int .n }}"}, AnnotationsTemplate: map[string]string{"n": "{{ int .n }}"},
				Object: parse(t, `{"apiVersion":"v1","kind":"Secret","stringData":{"n":"{{ int .n }}"},"data":{"b":"{{ bool .n }}"},"x":{"nodeSelector":{"n":"{{ int .n }}"},"containers":[{"env":[{"name":"N","value":"{{ int .n }}"}]}]}}`)},
			extra: []string{"n", "1"},
			want:  `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"ns","labels":{"n":"1"},"annotations":{"n":"1"}},"stringData":{"n":"1"},"data":{"b":"true"},"x":{"nodeSelector":{"n":"1"},"containers":[{"env":[{"name":"N","value":"1"}]}]}}`,
		},
		"a variable of a stack is a text unless it is cast": {
			resource: Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","spec":{"vars":[{"name":"a","value":"{{ .n }}"},{"name":"b","value":"{{ .n | int }}"}]}}`)},
			extra:    []string{"n", "3"}, options: RenderOptions{TenantUID: "acme"},
			want: `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","metadata":{"name":"a","namespace":"ns","labels":{"terrier.dev/tenant-id":"acme"}},"spec":{"approvePlan":"auto","destroyResourcesOnDeletion":true,"vars":[{"name":"a","value":"3"},{"name":"b","value":3}]}}`,
		},
		"a retained stack is not destroyed": {
			resource: Resource{NameTemplate: "a", Deletion: Retain, Object: parse(t, `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha1","kind":"Terraform","spec":{}}`)},
			options:  RenderOptions{TenantUID: "Ä/1"},
			want:     `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha1","kind":"Terraform","metadata":{"name":"a","namespace":"ns","labels":{"terrier.dev/tenant-id":"` + Label("Ä/1") + `"}},"spec":{"approvePlan":"auto"}}`,
		},
		"a retained stack that is merged is told so": {
			resource: Resource{NameTemplate: "a", Deletion: Retain, Patch: Merge, Object: parse(t, `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","spec":{}}`)},
			want:     `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","metadata":{"name":"a","namespace":"ns"},"spec":{"approvePlan":"auto","destroyResourcesOnDeletion":false}}`,
		},
		"a stack keeps what its template says": {
			resource: Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","spec":{"approvePlan":"","destroyResourcesOnDeletion":false}}`)},
			want:     `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","metadata":{"name":"a","namespace":"ns"},"spec":{"approvePlan":"","destroyResourcesOnDeletion":false}}`,
		},
		"a stack that is only planned": {
			resource: Resource{NameTemplate: "a", Deletion: Retain, Object: parse(t, `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","spec":{"planOnly":true}}`)},
			want:     `{"apiVersion":"infra.contrib.fluxcd.io/v1alpha2","kind":"Terraform","metadata":{"name":"a","namespace":"ns"},"spec":{"planOnly":true}}`,
		},
		"what data holds is no template, wherever it goes (D-01)": {
			resource: Resource{NameTemplate: "a", AnnotationsTemplate: map[string]string{"x": "{{ .x }}"}, Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"y":"{{ .x }}"}},"data":{"z":"{{ .x }}"}}`)},
			extra:    []string{"x", `{{ env "HOME" }}`},
			want:     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","annotations":{"x":"{{ env \"HOME\" }}","y":"{{ env \"HOME\" }}"}},"data":{"z":"{{ env \"HOME\" }}"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.resource.ID, tt.options.Namespace = "r", "ns"
			before, err := json.Marshal(tt.resource.Object)
			if err != nil {
				t.Fatal(err)
			}
			objects, errs := Render(Template{Resources: []Resource{tt.resource}}, values(tt.extra...), tt.options)
			if len(errs) > 0 || len(objects) != 1 {
				t.Fatalf("Render() = %v, %v", objects, errs)
			}
			if diff := cmp.Diff(parse(t, tt.want), objects[0].Rendered); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if after, err := json.Marshal(tt.resource.Object); err != nil || string(after) != string(before) {
				t.Errorf("the template has changed to %s (%v)", after, err)
			}
		})
	}
}

func TestRenderSaysWhereAndWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		resource Resource
		want     []string
	}{
		"every text that does not work": {
			Resource{NameTemplate: "{{ .nope }}", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":[{"b":"{{ .plan }}"}],"c":"{{ now }}"}}`)},
			[]string{
				"r: spec.data.a[0].b: there is no variable plan; the variables are activate, host, hostOrUrl, registryId, templateRef, uid",
				"r: spec.data.c: the function now is refused: its result differs each time",
				"r: nameTemplate: there is no variable nope; the variables are activate, host, hostOrUrl, registryId, templateRef, uid",
			},
		},
		"a name that is none":             {Resource{NameTemplate: "{{ .host }}:80", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{`r: nameTemplate: "acme.example.com:80" is not a valid name of a ConfigMap: only small letters, digits and - can be in it`}},
		"a name with capitals":            {Resource{NameTemplate: "{{ upper .uid }}", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{`r: nameTemplate: "ACME" is not a valid name of a ConfigMap: it has capital letters; the function lower converts them`}},
		"an empty name":                   {Resource{NameTemplate: `{{ "" }}`, Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{`r: nameTemplate: "" is not a valid name of a ConfigMap: it is empty`}},
		"a name of a Service":             {Resource{NameTemplate: "1-{{ .uid }}", Object: parse(t, `{"apiVersion":"v1","kind":"Service"}`)}, []string{`r: nameTemplate: "1-acme" is not a valid name of a Service: the name of a Service must begin with a letter`}},
		"no name":                         {Resource{Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{"r: spec: the object has no name: there is neither nameTemplate nor metadata.name"}},
		"a namespace that is none":        {Resource{NameTemplate: "a", TargetNamespace: "{{ .host }}", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{`r: targetNamespace: "acme.example.com" is not a valid name of a namespace: only small letters, digits and - can be in it`}},
		"an empty namespace":              {Resource{NameTemplate: "a", TargetNamespace: `{{ .nope | default "" }}`, Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{`r: targetNamespace: "" is not a valid name of a namespace: it is empty`}},
		"a label that is none":            {Resource{NameTemplate: "a", LabelsTemplate: map[string]string{"url": "{{ .hostOrUrl }}"}, Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap"}`)}, []string{`r: labelsTemplate.url: "https://acme.example.com/x" is not a valid label value: letters, digits, - _ and . can be in it, and it must begin and end with a letter or a digit`}},
		"a label of the spec":             {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"x":"{{ repeat 20 .uid }}"}}}`)}, []string{`r: spec.metadata.labels.x: "` + strings.Repeat("acme", 20) + `" is not a valid label value: it has 80 bytes, more than 63; the function trunc63 shortens it`}},
		"data chooses no kind":            {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"{{ .uid }}"}`)}, []string{"r: spec: kind must not be a template: no row may choose the kind of an object"}},
		"a label that is no text":         {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"x":true}}}`)}, []string{"r: spec: metadata.labels.x is not a string: put true in quotes"}},
		"owners":                          {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"ownerReferences":[]}}`)}, []string{"r: spec: metadata.ownerReferences cannot be set: the Tenant owns its objects"}},
		"a text in a field for a number":  {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"K","n":"{{ .uid }}"}`)}, []string{`r: spec.n: "acme" is no whole number`}},
		"nothing in a field for a number": {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"K","n":"{{ if false }}1{{ end }}"}`)}, []string{`r: spec.n: an empty text is no whole number; default gives another value for it`}},
		"a fraction in one":               {Resource{NameTemplate: "a", Object: parse(t, `{"apiVersion":"v1","kind":"K","n":"{{ divf 1 2 }}"}`)}, []string{`r: spec.n: 0.5 is no whole number`}},
		"a field of a list without keys": {Resource{NameTemplate: "a", IgnoreFields: []string{"$.l[*].x"}, Object: parse(t, `{"apiVersion":"v1","kind":"K","l":[{"x":"1"}]}`)},
			[]string{"r: ignoreFields[0]: $.l[*].x: the elements of l have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.l"}},
		"the Secret of a row": {Resource{NameTemplate: "terrier-row-{{ .uid }}-web", Object: parse(t, `{"apiVersion":"v1","kind":"Secret"}`)},
			[]string{`r: nameTemplate: "terrier-row-acme-web" is not a valid name of a Secret: names that begin with terrier-row- are those of rows`}},
		"a condition": {Resource{NameTemplate: "a", IncludeWhen: "row.nope == ''", Object: parse(t, `{"apiVersion":"v1","kind":"K"}`)}, []string{"r: includeWhen: no such key: nope"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.resource.ID = "r"
			good := config(t, `{"a":"b"}`)
			objects, errs := Render(Template{Resources: []Resource{tt.resource, good}}, values(), RenderOptions{Types: schemas{"K n": Integer}})
			if len(objects) != 1 || objects[0].ID != "c" {
				t.Errorf("the others became %v", objects)
			}
			var got []string
			for _, e := range errs {
				got = append(got, e.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderLeavesOut(t *testing.T) {
	r := func(id, when string, depends ...string) Resource {
		return Resource{ID: id, NameTemplate: id, IncludeWhen: when, DependIDs: depends, Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	}
	objects, errs := Render(Template{Resources: []Resource{
		r("app", "", "db", "cache"), r("db", `row.plan == "gold"`, "net"), r("cache", `row.plan == "gold"`, "net"), r("net", ""),
	}}, values("plan", "free"), RenderOptions{})
	if len(errs) > 0 || len(objects) != 2 || objects[0].ID != "net" || objects[1].ID != "app" {
		t.Fatalf("Render() = %v, %v", objects, errs)
	}
	if got := objects[1].DependIDs; !slices.Equal(got, []string{"net"}) {
		t.Errorf("app depends on %v, want what db and cache depended on, once", got)
	}
	if objects[0].Order != 0 || objects[1].Order != 3 {
		t.Errorf("the places are %d and %d, want 0 and 3", objects[0].Order, objects[1].Order)
	}
}

func TestRenderRefusesTheSameObjectTwice(t *testing.T) {
	a := Resource{ID: "a", NameTemplate: "{{ .uid }}", Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	b := Resource{ID: "b", NameTemplate: "acme", TargetNamespace: "ns", Object: map[string]any{"apiVersion": "apps/v1beta1", "kind": "Deployment"}}
	objects, errs := Render(Template{Resources: []Resource{a, b}}, values(), RenderOptions{Namespace: "ns"})
	if len(objects) != 1 || len(errs) != 1 || errs[0].Error() != "b: nameTemplate: it renders to Deployment ns/acme, as a does" {
		t.Errorf("Render() = %v, %v", objects, errs)
	}
}

func TestValuesOf(t *testing.T) {
	row := Row{UID: "acme", HostOrURL: "https://a.example.com:80/x", Activate: "yes", Extra: map[string]string{"plan": "gold", "host": "mine"}}
	want := Values{"uid": "acme", "hostOrUrl": "https://a.example.com:80/x", "host": "mine", "activate": "yes", "plan": "gold", "registryId": "reg", "templateRef": "tpl"}
	if diff := cmp.Diff(want, ValuesOf(row, "reg", "tpl")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := VariablesOf(Mapping{Extra: map[string]string{"plan": "plan_id"}}), strings.Fields("activate host hostOrUrl plan registryId templateRef uid"); !slices.Equal(got, want) {
		t.Errorf("VariablesOf() = %v, want %v", got, want)
	}
}

func TestLabel(t *testing.T) {
	if labelTenantID != tenantsv1.LabelTenantID {
		t.Errorf("the label is %s here and %s on the wire", labelTenantID, tenantsv1.LabelTenantID)
	}
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.String().Draw(t, "uid")
		switch got := Label(uid); {
		case got == "" || labelError(got) != nil:
			t.Fatalf("Label(%q) = %q, which is no label", uid, got)
		case labelError(uid) == nil && uid != "" && got != uid:
			t.Fatalf("Label(%q) = %q", uid, got)
		}
	})
}

// hostile is what a sign-up form may be given.
var hostile = []string{
	"x\"\n---\nkind: ClusterRoleBinding", `${file("/etc/shadow")}`, "{{ .uid }}", `{{ env "HOME" }}`, "{{", "}}", "{{/*", `{"a":[1]}`, "[1]", "- a", "a: b", "&a", "*a", "!!binary x", "---\n", "...",
	"null", "~", "true", "1", "1e9", "\x00", "\u202e", "\r\n", "\t", "%{ if true }", "'", "\"", "\\", "ü", "😀", strings.Repeat("a", 1<<16),
}

// A row adds no structure and no template, and is in the objects as it is (T04).
func TestRowsAddNoStructure(t *testing.T) {
	const object = `{"apiVersion":"x.io/v1","kind":"Any","metadata":{"annotations":{"a":"{{ .x }}","b":"<{{ .x }}>"}},"spec":{"a":"{{ .x }}","list":["{{ .x }}-{{ .y }}",[{"b":"{{ .y }}"},"plain"]],"n":1,"on":true,"nil":null,"with":"{{ with .x }}{{ . }}{{ end }}{{ .y | default .x }}","loop":"{{ range list .x .y }}{{ . }};{{ end }}"}}`
	draw := func(t *rapid.T, name string) string {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(hostile), rapid.String()), 1, 3).Draw(t, name)
		return strings.ToValidUTF8(strings.Join(parts, ""), "")
	}
	rapid.Check(t, func(t *rapid.T) {
		tree, err := fromJSONText(object)
		if err != nil {
			t.Fatal(err)
		}
		x, y := draw(t, "x"), draw(t, "y")
		template := Template{Resources: []Resource{{ID: "a", NameTemplate: "{{ .uid }}-{{ .x | sha1sum | trunc 8 }}", AnnotationsTemplate: map[string]string{"c": "{{ .y }}"}, Object: tree}}}
		render := func() map[string]any {
			objects, errs := Render(template, values("x", x, "y", y), RenderOptions{})
			if len(errs) > 0 || len(objects) != 1 {
				t.Fatalf("Render() = %v, %v", objects, errs)
			}
			return objects[0].Rendered
		}
		got := render()
		deflt := y
		if y == "" {
			deflt = x
		}
		want := map[string]any{
			"apiVersion": "x.io/v1", "kind": "Any",
			"metadata": map[string]any{"name": got["metadata"].(map[string]any)["name"], "annotations": map[string]any{"a": x, "b": "<" + x + ">", "c": y}},
			"spec":     map[string]any{"a": x, "list": []any{x + "-" + y, []any{map[string]any{"b": y}, "plain"}}, "n": int64(1), "on": true, "nil": nil, "with": x + deflt, "loop": x + ";" + y + ";"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("(-want +got):\n%s", cmp.Diff(want, got))
		}
		if again := render(); !reflect.DeepEqual(again, got) {
			t.Fatalf("the same row gives something else (-first +second):\n%s", cmp.Diff(got, again))
		}
	})
}

// Whatever a template holds, there is an object or an error, and both are texts
// that can be written as JSON.
func FuzzRender(f *testing.F) {
	for _, s := range append([]string{"{{ .uid }}", "{{ int .x }}", "{{ .x | fromJson }}", "{{ .x", "{{ range $i, $e := . }}{{ $i }}{{ end }}"}, hostile[:20]...) {
		f.Add(s, "3")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		r := Resource{ID: "a", NameTemplate: text, TargetNamespace: text, LabelsTemplate: map[string]string{"l": text}, IncludeWhen: "", Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"t": text, text: []any{text}}}}
		template := Template{Resources: []Resource{r, config(t, `{"a":"b"}`)}}
		checked := Check(template, nil)
		objects, errs := Render(template, values("x", value), RenderOptions{Types: schemas{"ConfigMap data.t": Integer}})
		if len(objects) == 2 && len(errs) > 0 || len(objects) < 2 && len(errs) == 0 {
			t.Errorf("%d objects and %v", len(objects), errs)
		}
		if len(checked) > 0 && len(errs) == 0 {
			t.Errorf("%q is refused (%v) and rendered", text, checked)
		}
		for _, e := range errs {
			if !utf8.ValidString(e.Error()) && utf8.ValidString(text) && utf8.ValidString(value) {
				t.Errorf("the error %q is no text", e)
			}
		}
		if _, err := json.Marshal(objects); err != nil {
			t.Error(err)
		}
	})
}

func TestReadyWhen(t *testing.T) {
	ready, err := ReadyWhen(`object.status.phase == "Bound"`, parse(t, `{"status":{"phase":"Bound"}}`))
	if !ready || err != nil {
		t.Errorf("ReadyWhen() = %v, %v", ready, err)
	}
	if ready, err = ReadyWhen(`object.status.phase == "Bound"`, parse(t, `{}`)); ready || err == nil || err.Error() != "readyWhen: no such key: status" {
		t.Errorf("ReadyWhen() = %v, %v; what is not there yet is not ready, and says so", ready, err)
	}
	if include, err := (Resource{IncludeWhen: `row.uid.startsWith("ac")`}).includes(values()); !include || err != nil {
		t.Errorf("includes() = %v, %v", include, err)
	}
	if _, err := (Resource{IncludeWhen: `object.x`}).includes(values()); err == nil || !strings.Contains(err.Error(), "undeclared reference to 'object'") {
		t.Errorf("includes() error = %v", err)
	}
}

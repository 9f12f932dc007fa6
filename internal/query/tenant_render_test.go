package query_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

const everyType = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: types}
spec:
  registryId: r
  manifests:
  - id: object
    spec: OBJECT
`

// Without a cluster, texts become what the fields of built-in kinds are.
func TestTypesOfBuiltInKinds(t *testing.T) {
	for name, tt := range map[string]struct{ object, want string }{
		"a whole number": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: "{{ .n }}"}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":3}}`,
		},
		"a truth value, in what is embedded and in a list": {
			`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostNetwork: "{{ .yes }}", containers: [{name: c, ports: [{containerPort: "{{ .n }}"}]}]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default"},"spec":{"containers":[{"name":"c","ports":[{"containerPort":3}]}],"hostNetwork":true}}`,
		},
		"a port by number, and by name": {
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80, targetPort: "{{ .n }}"}, {port: 81, targetPort: "{{ .yes }}"}]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"default"},"spec":{"ports":[{"port":80,"targetPort":3},{"port":81,"targetPort":"true"}]}}`,
		},
		"texts that look like numbers": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {num: "{{ .n }}"}, annotations: {flag: "{{ .yes }}"}}, data: {num: "{{ .n }}"}}`,
			`{"apiVersion":"v1","data":{"num":"3"},"kind":"ConfigMap","metadata":{"annotations":{"flag":"true"},"labels":{"num":"3"},"name":"a","namespace":"default"}}`,
		},
		"quantities": {
			`{apiVersion: v1, kind: LimitRange, metadata: {name: a}, spec: {limits: [{type: Pod, max: {cpu: "{{ .n }}"}}]}}`,
			`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"a","namespace":"default"},"spec":{"limits":[{"max":{"cpu":"3"},"type":"Pod"}]}}`,
		},
		"what is in no namespace": {
			`{apiVersion: v1, kind: Namespace, metadata: {name: a}}`,
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`,
		},
		"a kind that is not built in": {
			`{apiVersion: example.com/v1, kind: Gizmo, metadata: {name: a}, spec: {text: "{{ .n }}", cast: "{{ .n | int }}"}}`,
			`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"a","namespace":"default"},"spec":{"cast":3,"text":"3"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := query.RenderManifest([]byte(strings.Replace(everyType, "OBJECT", tt.object, 1)), query.RenderChoice{},
				query.RowText{"uid": "acme", "n": "3", "yes": "true"})
			if err != nil || list[0].Fault() != nil {
				t.Fatalf("RenderManifest() is %v, %+v", err, list)
			}
			raw, err := json.Marshal(list[0].Objects[0].Object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(raw), tt.want); diff != "" {
				t.Errorf("the object is (-got +want):\n%s", diff)
			}
		})
	}
}

// A manifest of several templates and registries: the right ones are rendered,
// with the variables that their own registry gives.
func TestRenderChoosesTemplates(t *testing.T) {
	one := func(name, registry string) string {
		return `---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: ` + name + `, namespace: shop}
spec:
  registryId: ` + registry + `
  configMaps: [{id: c, nameTemplate: "{{ .uid }}", spec: {apiVersion: v1, kind: ConfigMap, data: {plan: "{{ .plan }}"}}}]
`
	}
	manifest := one("a", "knows") + one("b", "does-not") + `---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: does-not}
spec: {source: {type: sqlite, sqlite: {path: /a, table: t}}, valueMappings: {uid: id, activate: on}}
---
apiVersion: v1
kind: Secret
`
	row := query.RowText{"uid": "acme", "plan": "gold"}
	for name, tt := range map[string]struct {
		choose query.RenderChoice
		want   string // template: number of faults
		kind   fault.Kind
	}{
		"all":               {query.RenderChoice{}, "a:0 b:1", fault.None},
		"one":               {query.RenderChoice{Template: "a"}, "a:0", fault.None},
		"those of registry": {query.RenderChoice{Registry: "does-not"}, "b:1", fault.None},
		"none":              {query.RenderChoice{Template: "a", Registry: "does-not"}, "", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := query.RenderManifest([]byte(manifest), tt.choose, row)
			if fault.Of(err) != tt.kind {
				t.Fatalf("RenderManifest() is %v, want %v", err, tt.kind)
			}
			var got []string
			for _, r := range list {
				got = append(got, r.Template+":"+string(rune('0'+len(r.Errors))))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("rendered are %v, want %s: %+v", got, tt.want, list)
			}
		})
	}
}

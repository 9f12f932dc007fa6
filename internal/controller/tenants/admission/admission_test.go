package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/config/crd"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
)

// object is a manifest as an API server sends it.
func object(t *testing.T, manifest string) runtime.RawExtension {
	t.Helper()
	if manifest == "" {
		return runtime.RawExtension{}
	}
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

// template is one with these resources, besides a line of metadata.
func template(metadata, spec string) string {
	return "apiVersion: operator.kubernetes-tenants.org/v1\nkind: TenantTemplate\nmetadata: {name: web" + metadata + "}\nspec: {registryId: shop, " + spec + "}\n"
}

func registry(spec string) string {
	return "apiVersion: operator.kubernetes-tenants.org/v1\nkind: TenantRegistry\nmetadata: {name: shop}\nspec: {" + spec + "}\n"
}

// post sends body to a webhook.
func post(t *testing.T, path string, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	all, err := Handlers(crd.Files, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	all[path].ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return w
}

// ask has a webhook answer a request.
func ask(t *testing.T, path string, r admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	r.UID = "4711"
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &r}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	w := post(t, path, body)
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if got.TypeMeta != review.TypeMeta || got.Request != nil || got.Response == nil || got.Response.UID != r.UID {
		t.Fatalf("the answer is %s, want a review of request %s", w.Body, r.UID)
	}
	return got.Response
}

// asks has a webhook that is not among those of Handlers answer a request.
func asks(t *testing.T, h http.Handler, r admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &r})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return got.Response
}

// said is an answer on a few lines.
func said(r *admissionv1.AdmissionResponse) []string {
	var all []string
	if !r.Allowed {
		for _, c := range r.Result.Details.Causes {
			all = append(all, c.Field+": "+c.Message)
		}
	}
	for _, w := range r.Warnings {
		all = append(all, "warning: "+w)
	}
	return all
}

const (
	cycle    = `secrets: [{id: a, nameTemplate: a, dependIds: [b], spec: {apiVersion: v1, kind: Secret}}], configMaps: [{id: b, nameTemplate: b, dependIds: [a], spec: {apiVersion: v1, kind: ConfigMap}}]`
	fine     = `secrets: [{id: a, nameTemplate: "{{ .planId | trunc63 }}", labelsTemplate: {plan: "{{ .planId }}"}, annotationsTemplate: {host: "{{ .url | toHost }}"}, spec: {apiVersion: v1, kind: Secret}}]`
	unparsed = `secrets: [{id: a, nameTemplate: "{{ .uid", spec: {apiVersion: v1, kind: Secret, stringData: {x: "{{ nope }}"}}}]`
	oneLine  = `manifests: [{id: a, nameTemplate: a, spec: {apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, spec: {values: {hcl: 'variable "v" { type = string sensitive = true }'}}}}]`
)

// notAName is what Kubernetes says of a name.
const notAName = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character " +
	"(e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"

func TestTemplates(t *testing.T) {
	for name, tt := range map[string]struct {
		operation     admissionv1.Operation
		sub           string
		before, now   string
		want          []string
		wantAllowed   bool
		wantInMessage string
	}{
		"variables of a registry that nobody knows yet (L-01, D-16)": {operation: "CREATE", now: template("", fine), wantAllowed: true},
		"a cycle": {
			operation: "CREATE", now: template("", cycle),
			want: []string{"spec.configMaps[0].dependIds: b: the resources depend on one another: b → a → b"}, wantInMessage: "spec.configMaps[0].dependIds",
		},
		"everything at once, where it stands": {
			operation: "CREATE", now: template("", unparsed),
			want: []string{"spec.secrets[0].nameTemplate: a: unclosed action", `spec.secrets[0].spec.stringData.x: a: there is no function nope`}, wantInMessage: "; and 1 more",
		},
		"an id that is used twice, at the second": {
			operation: "CREATE", now: template("", `configMaps: [{id: a, nameTemplate: a, spec: {apiVersion: v1, kind: ConfigMap}}], manifests: [{id: a, nameTemplate: b, spec: {apiVersion: v1, kind: Secret}}]`),
			want: []string{"spec.manifests[0].id: a: the id is used twice, in configMaps and in manifests"}, wantInMessage: "used twice",
		},
		"a wave that selects nothing": {
			operation: "CREATE", now: template("", `rollout: {waves: [{name: first, selector: {matchExpressions: [{key: a, operator: Near}]}}]}`),
			want: []string{`spec.rollout: rollout.waves[0] (first): "Near" is not a valid label selector operator`}, wantInMessage: "waves[0]",
		},
		"a ServiceAccount that cannot be": {
			operation: "CREATE", now: template("", "serviceAccountName: 'system:masters', "+fine),
			want: []string{`spec.serviceAccountName: "system:masters" is no name of a ServiceAccount: ` + notAName}, wantInMessage: "spec.serviceAccountName",
		},
		"a ServiceAccount that may come later": {operation: "CREATE", now: template("", "serviceAccountName: writer.of-team, "+fine), wantAllowed: true},
		"a valid one that becomes a cycle": {
			operation: "UPDATE", before: template("", fine), now: template("", cycle),
			want: []string{"spec.configMaps[0].dependIds: b: the resources depend on one another: b → a → b"}, wantInMessage: "dependIds",
		},
		"a spec that stays as it is, however wrong": {operation: "UPDATE", before: template("", cycle), now: template(", labels: {a: b}, finalizers: []", cycle), wantAllowed: true},
		"what was wrong before is a warning": {
			operation: "UPDATE", before: template("", cycle), now: template("", cycle+", deletionProtection: true"), wantAllowed: true,
			want: []string{"warning: spec.configMaps[0].dependIds is still not valid: b: dependIds: the resources depend on one another: b → a → b"},
		},
		"a finalizer is taken off what is deleted": {operation: "UPDATE", before: template("", fine), now: template(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, cycle), wantAllowed: true},
		"a deletion":   {operation: "DELETE", before: template("", cycle), wantAllowed: true},
		"a status":     {operation: "UPDATE", sub: "status", before: template("", fine), now: template("", cycle), wantAllowed: true},
		"a connection": {operation: "CONNECT", wantAllowed: true},
		"a module that is repaired is a warning": {
			operation: "CREATE", now: template("", oneLine), wantAllowed: true,
			want: []string{`warning: a: spec.values.hcl, line 1 (variable "v"): HCL refuses several arguments on one line; Terrier will put them on lines of their own`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, ValidateTemplate, admissionv1.AdmissionRequest{
				Kind:      metav1.GroupVersionKind{Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "TenantTemplate"},
				Operation: tt.operation, SubResource: tt.sub, Object: object(t, tt.now), OldObject: object(t, tt.before),
			})
			if diff := cmp.Diff(tt.want, said(got)); diff != "" || got.Allowed != tt.wantAllowed {
				t.Fatalf("allowed: %t, want %t (-want +got):\n%s", got.Allowed, tt.wantAllowed, diff)
			}
			if got.Allowed {
				return
			}
			if s := got.Result; s.Code != http.StatusUnprocessableEntity || s.Reason != metav1.StatusReasonInvalid || s.Details.Kind != "TenantTemplate" || s.Details.Name != "web" || !strings.Contains(s.Message, tt.wantInMessage) {
				t.Errorf("refused with %+v, want that TenantTemplate web is not valid, and %q in the message", s, tt.wantInMessage)
			}
		})
	}
}

func TestRegistries(t *testing.T) {
	for name, tt := range map[string]struct{ spec, want string }{
		"a table":               {`source: {type: sqlite, sqlite: {path: shop.db, table: customers}}, valueMappings: {uid: id, activate: active}`, ""},
		"a server with secrets": {`source: {type: mysql, mysql: {host: db, username: u, database: d, table: t, passwordRef: {name: s, key: k}, tls: {certRef: {name: s, key: c}, keyRef: {name: s, key: k}}}}, valueMappings: {uid: id, activate: active}`, ""},
		"no table that could be": {`source: {type: mysql, mysql: {host: db, username: u, database: d, table: "t; DROP TABLE t"}}, valueMappings: {uid: id, activate: active}`,
			`spec.source.mysql: table "t; DROP TABLE t" is not the name of a table or view, nor a schema and a name with a dot between: for anything else use query`},
		"no query": {`source: {type: postgresql, postgresql: {host: db, username: u, database: d, query: "UPDATE t SET a = 1"}}, valueMappings: {uid: id, activate: active}`,
			`spec.source.postgresql: query begins with "UPDATE": give one SELECT`},
		"no user":         {`source: {type: mysql, mysql: {host: db, database: d, table: t}}, valueMappings: {uid: id, activate: active}`, "spec.source.mysql: username is missing"},
		"nothing to read": {`source: {type: mysql}, valueMappings: {uid: id, activate: active}`, "spec.source: type mysql without spec.source.mysql"},
		"a column without a name": {`source: {type: sqlite, sqlite: {path: shop.db, table: customers}}, valueMappings: {uid: id, activate: active}, extraValueMappings: {plan: ""}`,
			"spec.extraValueMappings.plan: the name of the column is missing"},
		"an inventory":            {`source: {type: inventory, inventory: {sourceRef: {kind: GitRepository, name: e}, variables: [{name: cores, type: number}, {name: cores, as: more, group: db}]}}, extraValueMappings: {c: vars.more}`, ""},
		"an inventory of nothing": {`source: {type: inventory}`, "spec.source.inventory: it is required for type inventory"},
		"an inventory elsewhere": {`source: {type: inventory, inventory: {sourceRef: {kind: GitRepository, name: e}, path: ../x}}`,
			`spec.source.inventory.path: "../x" is no directory of the artifact: name one without .. and without a / at its beginning`},
		"two variables of one name": {`source: {type: inventory, inventory: {sourceRef: {kind: GitRepository, name: e}, variables: [{name: a}, {name: b, as: a}]}}`,
			"spec.source.inventory.variables[1]: the variable a of the module is that of variables[0], too: give one of them another name with as"},
		"a variable that no module can have": {`source: {type: inventory, inventory: {sourceRef: {kind: GitRepository, name: e}, variables: [{name: a.b}]}}`,
			`spec.source.inventory.variables[0].as: "a.b" is no name of a variable of a module: letters, digits, _ and - can be in it`},
		"a column that no inventory has": {`source: {type: inventory, inventory: {sourceRef: {kind: GitRepository, name: e}}}, extraValueMappings: {x: vars.x}`,
			`spec.extraValueMappings.x: an inventory has no column "vars.x"; there are uid, active, path, terraformPath, digest, hosts, vars`},
		"another uid than the directory": {`source: {type: inventory, inventory: {sourceRef: {kind: GitRepository, name: e}}}, valueMappings: {uid: path, activate: active}`,
			`spec.valueMappings.uid: it is "path", and the uid of an inventory is the name of the directory: set it to uid, or remove valueMappings`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, ValidateRegistry, admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, registry(tt.spec))})
			if s := strings.Join(said(got), "\n"); s != tt.want || got.Allowed != (tt.want == "") {
				t.Errorf("allowed: %t, %s, want %q", got.Allowed, s, tt.want)
			}
		})
	}
}

// The templates of Tenant Operator's guide pass as they are, and nothing is said
// of them but which lines will be broken.
func TestTheGuide(t *testing.T) {
	files, err := filepath.Glob("../../../tenant/testdata/seed/*.yaml")
	if err != nil || len(files) != 9 {
		t.Fatalf("there are %d templates, %v; want nine", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := ask(t, ValidateTemplate, admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, string(text))})
		if !got.Allowed {
			t.Errorf("%s: %q", filepath.Base(file), said(got))
		}
		for _, w := range got.Warnings {
			if !strings.Contains(w, "on one line") {
				t.Errorf("%s: warns %q", filepath.Base(file), w)
			}
		}
	}
}

// Defaults are filled in where the definitions of the cluster have not done so,
// and nowhere else.
func TestDefaults(t *testing.T) {
	const whole = `creationPolicy: WhenNeeded, deletionPolicy: Delete, conflictPolicy: Stuck, waitForReady: true, timeoutSeconds: 300, patchStrategy: apply, skipOnDependencyFailure: true`
	const bare = `secrets: [{id: a, spec: {apiVersion: v1, kind: Secret}, creationPolicy: Once}]`
	for name, tt := range map[string]struct {
		path        string
		operation   admissionv1.Operation
		before, now string
		want        []string
	}{
		"a template": {path: MutateTemplate, operation: "CREATE", now: template("", bare), want: []string{
			`/spec/secrets/0/conflictPolicy="Stuck"`, `/spec/secrets/0/deletionPolicy="Delete"`, `/spec/secrets/0/patchStrategy="apply"`,
			`/spec/secrets/0/skipOnDependencyFailure=true`, `/spec/secrets/0/timeoutSeconds=300`, `/spec/secrets/0/waitForReady=true`,
		}},
		"a template that says everything":  {path: MutateTemplate, operation: "CREATE", now: template("", `secrets: [{id: a, spec: {apiVersion: v1}, `+whole+`}]`)},
		"a spec that stays as it is":       {path: MutateTemplate, operation: "UPDATE", before: template("", bare), now: template(", labels: {a: b}", bare)},
		"a template that is being deleted": {path: MutateTemplate, operation: "UPDATE", before: template("", fine), now: template(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, bare)},
		"a registry": {path: MutateRegistry, operation: "CREATE", now: registry(`source: {type: mysql, mysql: {host: db}}`), want: []string{
			`/spec/source/mysql/port=3306`, `/spec/source/syncInterval="30s"`,
		}},
		"a deletion": {path: MutateRegistry, operation: "DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, tt.path, admissionv1.AdmissionRequest{Operation: tt.operation, Object: object(t, tt.now), OldObject: object(t, tt.before)})
			var patch []operation
			if len(got.Patch) > 0 {
				if err := json.Unmarshal(got.Patch, &patch); err != nil || *got.PatchType != admissionv1.PatchTypeJSONPatch {
					t.Fatalf("the patch is %s, %v", got.Patch, err)
				}
			}
			var adds []string
			for _, o := range patch {
				if o.Op != "add" {
					t.Errorf("the patch does %s to %s, want that it only adds", o.Op, o.Path)
				}
				adds = append(adds, fmt.Sprintf("%s=%s", o.Path, o.Value))
			}
			if diff := cmp.Diff(tt.want, adds); diff != "" || !got.Allowed {
				t.Errorf("allowed: %t (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
}

// What is not understood gets no verdict, so that the API server goes on without.
func TestNoVerdict(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":               `{`,
		"no review":             `{}`,
		"an older one":          `{"apiVersion":"admission.k8s.io/v1beta1","request":{"operation":"CREATE"}}`,
		"no object":             `{"apiVersion":"admission.k8s.io/v1","request":{"operation":"CREATE"}}`,
		"an object of tomorrow": `{"apiVersion":"admission.k8s.io/v1","request":{"operation":"CREATE","object":{"spec":{"secrets":{"a":1}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if w := post(t, ValidateTemplate, []byte(body)); w.Code != http.StatusBadRequest {
				t.Errorf("%d %s, want %d", w.Code, w.Body, http.StatusBadRequest)
			}
		})
	}
}

// However much is wrong, what is said stays readable.
func TestManyProblems(t *testing.T) {
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprintf(`{id: a%d, nameTemplate: n%[1]d, dependIds: [none], spec: {apiVersion: v1, kind: Secret}}`, i))
	}
	bad := "secrets: [" + strings.Join(all, ", ") + "]"
	got := said(ask(t, ValidateTemplate, admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, template("", bad))}))
	if len(got) != mostProblems+1 || got[mostProblems] != "spec: 20 more are not valid" {
		t.Errorf("%d are told, and the last is %q", len(got), got[len(got)-1])
	}
	got = said(ask(t, ValidateTemplate, admissionv1.AdmissionRequest{
		Operation: "UPDATE", OldObject: object(t, template("", bad)), Object: object(t, template("", bad+", deletionProtection: true")),
	}))
	if len(got) != mostWarnings+1 || got[mostWarnings] != "warning: and 30 more" {
		t.Errorf("%d warnings, and the last is %q", len(got), got[len(got)-1])
	}
}

// A stack is never refused. A bad value of an annotation is a warning, and so is an
// annotation that only the other kind reads.
func TestWarningsOfStacks(t *testing.T) {
	for name, tt := range map[string]struct {
		group, annotations string
		want               []string
	}{
		"right ones":       {"alustan.io", `{terrier.dev/suspended: "yes", terrier.dev/drift: report, example.com/suspended: maybe}`, nil},
		"bad values":       {"alustan.io", `{terrier.dev/suspended: ture, terrier.dev/drift: repot}`, []string{`the annotation terrier.dev/drift is "repot"; it may be repair or report`, `the annotation terrier.dev/suspended is "ture"; it may be true or false`}},
		"the first kind":   {"infra.contrib.fluxcd.io", `{terrier.dev/adopt-state: perhaps}`, []string{`the annotation terrier.dev/adopt-state is "perhaps"; it may be true or false`}},
		"the other kind's": {"infra.contrib.fluxcd.io", `{terrier.dev/suspended: "true"}`, []string{"no effect: metadata.annotations[terrier.dev/suspended] (spec.suspend takes its place)"}},
		"a typing error":   {"alustan.io", `{terrier.dev/suspend: "true"}`, []string{"no effect: metadata.annotations[terrier.dev/suspend] (there is no such annotation: it may be terrier.dev/suspended)"}},
		"of a program":     {"alustan.io", `{terrier.dev/tenant: "a", terrier.dev/changed-by: "ann"}`, nil},
		"a guard":          {"infra.contrib.fluxcd.io", `{guard.terrier.dev/maxDestroys: "0"}`, nil},
		"no guard":         {"infra.contrib.fluxcd.io", `{guard.terrier.dev/maxDestroy: "0"}`, []string{"the annotation guard.terrier.dev/maxDestroy is no guard; it may be guard.terrier.dev/maxDestroys"}},
		"no annotations":   {"infra.contrib.fluxcd.io", "{}", nil},
		"another group":    {"example.com", `{terrier.dev/suspended: ture}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := admissionv1.AdmissionRequest{Operation: admissionv1.Update, Kind: metav1.GroupVersionKind{Group: tt.group, Version: "v1", Kind: "Terraform"}}
			r.Object = object(t, "metadata: {name: net, annotations: "+tt.annotations+"}\n")
			got := ask(t, WarnOfStack, r)
			if diff := cmp.Diff(tt.want, got.Warnings); diff != "" || !got.Allowed {
				t.Errorf("allowed: %v; warnings (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
}

// teller says one thing of every stack.
type teller struct{ told []string }

func (t *teller) Tell(_ context.Context, _ dialect.Dialect, obj client.Object, raw map[string]json.RawMessage, user string) []string {
	t.told = append(t.told, obj.GetNamespace()+"/"+obj.GetName()+" of "+user)
	return []string{fmt.Sprintf("it has %d parts", len(raw))}
}

func (*teller) TellDeleted(_ context.Context, _ dialect.Dialect, obj client.Object) []string {
	return []string{"deleted: " + obj.GetName()}
}

func (t *teller) TellPolicy(ctx context.Context, obj client.Object) []string {
	if _, bounded := ctx.Deadline(); !bounded {
		return []string{"without a bound"}
	}
	t.told = append(t.told, fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName()))
	return []string{"the program is wrong"}
}

// A policy is never refused. At the secret path a user is told what is wrong with its program
// as well, and elsewhere what the object alone shows.
func TestWarningsOfPolicies(t *testing.T) {
	const wrong = "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec: {guards: {maxDestroyedShare: a lot}}\n"
	other := strings.Replace(wrong, "a lot", "20%", 1)
	for name, tt := range map[string]struct {
		r           admissionv1.AdmissionRequest
		kind        string
		known, here string
	}{
		"a policy":             {admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, wrong)}, "ClusterPolicy", "the program is wrong", "spec.guards.maxDestroyedShare"},
		"one of a namespace":   {admissionv1.AdmissionRequest{Operation: "CREATE", Namespace: "team", Object: object(t, strings.Replace(wrong, "Cluster", "", 1))}, "Policy", "the program is wrong", "spec.guards.maxDestroyedShare"},
		"a change":             {admissionv1.AdmissionRequest{Operation: "UPDATE", Object: object(t, wrong), OldObject: object(t, other)}, "ClusterPolicy", "the program is wrong", "spec.guards.maxDestroyedShare"},
		"nothing is wrong":     {admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, other)}, "ClusterPolicy", "the program is wrong", ""},
		"nothing changes":      {admissionv1.AdmissionRequest{Operation: "UPDATE", Object: object(t, wrong), OldObject: object(t, wrong)}, "ClusterPolicy", "", ""},
		"a status":             {admissionv1.AdmissionRequest{Operation: "UPDATE", SubResource: "status", Object: object(t, wrong), OldObject: object(t, other)}, "ClusterPolicy", "", ""},
		"an object of no kind": {admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, wrong)}, "Other", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.r.Kind = metav1.GroupVersionKind{Group: "policy.terrier.dev", Version: "v1alpha1", Kind: tt.kind}
			p := &teller{}
			handlers, err := Handlers(crd.Files, kinds.All())
			if err != nil {
				t.Fatal(err)
			}
			for want, h := range map[*string]http.Handler{
				&tt.known:    TellingOfPolicies(func() Teller { return p }),
				&tt.here:     handlers[WarnOfPolicy],
				new(tt.here): TellingOfPolicies(func() Teller { return nil }),
			} {
				got := asks(t, h, tt.r)
				if !got.Allowed || (*want == "") != (len(got.Warnings) == 0) || *want != "" && !strings.HasPrefix(got.Warnings[0], *want) {
					t.Errorf("allowed %t with %q, want %q", got.Allowed, got.Warnings, *want)
				}
			}
			if tt.known != "" && fmt.Sprint(p.told) != fmt.Sprintf("[*v1alpha1.%s %s/production]", tt.kind, tt.r.Namespace) {
				t.Errorf("asked about %q", p.told)
			}
		})
	}
}

// Policies are told at the secret path, of objects that are not being deleted already, and of
// deletions.
func TestPoliciesAreTold(t *testing.T) {
	const stack = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net, annotations: {guard.terrier.dev/nothing: a}}\nspec: {}\n"
	const leaving = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net, deletionTimestamp: '2026-01-01T00:00:00Z'}\n"
	kind := metav1.GroupVersionKind{Group: "infra.contrib.fluxcd.io", Version: "v1alpha2", Kind: "Terraform"}
	for name, tt := range map[string]struct {
		r    admissionv1.AdmissionRequest
		none bool // there are no policies
		want string
		told int
	}{
		"an object":                {r: admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, stack)}, want: "guard.terrier.dev/nothing is no guard|it has 4 parts", told: 1},
		"without policies":         {r: admissionv1.AdmissionRequest{Operation: "CREATE", Object: object(t, stack)}, none: true, want: "guard.terrier.dev/nothing is no guard"},
		"a deletion":               {r: admissionv1.AdmissionRequest{Operation: "DELETE", OldObject: object(t, stack)}, want: "deleted: net"},
		"what is deleted already":  {r: admissionv1.AdmissionRequest{Operation: "UPDATE", Object: object(t, leaving), OldObject: object(t, leaving)}},
		"a status":                 {r: admissionv1.AdmissionRequest{Operation: "UPDATE", SubResource: "status", Object: object(t, stack)}},
		"a deletion of everything": {r: admissionv1.AdmissionRequest{Operation: "DELETE"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &teller{}
			h := Telling(kinds.All(), func() Teller {
				if tt.none {
					return nil
				}
				return p
			})
			tt.r.Kind, tt.r.Namespace, tt.r.UserInfo.Username = kind, "team", "ann"
			got := asks(t, h, tt.r)
			for i, want := range strings.Split(tt.want, "|") {
				if tt.want != "" && (len(got.Warnings) <= i || !strings.Contains(got.Warnings[i], want)) || tt.want == "" && len(got.Warnings) > 0 || !got.Allowed {
					t.Errorf("allowed %t with %q, want %q", got.Allowed, got.Warnings, tt.want)
				}
			}
			if len(p.told) != tt.told || tt.told > 0 && p.told[0] != "team/net of ann" {
				t.Errorf("asked about %q", p.told)
			}
		})
	}
}

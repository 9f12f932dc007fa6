package app

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	config "github.com/terrier-iac/terrier/config/admission"
	"github.com/terrier-iac/terrier/internal/controller/tenants/admission"
)

// Every webhook that an API server is told of is served, leads to this server
// and to no other, and never holds up a write.
func TestWebhooksOfAdmission(t *testing.T) {
	served, err := admissionHandlers(nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://127.0.0.1:8443"
	all, err := webhooks{url: url, ca: []byte("certificate")}.configurations(config.Webhooks)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, u := range all {
		for _, hook := range hooksOf(t, u) {
			names[hook["name"].(string)] = true
			at, _, _ := unstructured.NestedString(hook, "clientConfig", "url")
			path, ours := at[min(len(url), len(at)):], len(at) > len(url) && at[:len(url)] == url
			if served[path] == nil || !ours {
				t.Errorf("%s leads to %q, which is not served", hook["name"], at)
			}
			delete(served, path)
			if ca, _, _ := unstructured.NestedString(hook, "clientConfig", "caBundle"); ca != "Y2VydGlmaWNhdGU=" {
				t.Errorf("%s trusts %q", hook["name"], ca)
			}
			if hook["failurePolicy"] != "Ignore" || hook["sideEffects"] != "None" || len(hook["matchConditions"].([]any)) != 2 || hook["namespaceSelector"] != nil {
				t.Errorf("%s is %v, want that writes go on without it, and only what asks for something new comes to it", hook["name"], hook)
			}
		}
	}
	want := map[string]bool{"mtenantregistry.kb.io": true, "vtenantregistry.kb.io": true, "mtenanttemplate.kb.io": true, "vtenanttemplate.kb.io": true, "vterraform.terrier.dev": true, "vpolicy.terrier.dev": true}
	if diff := cmp.Diff(want, names); diff != "" || len(served) > 0 {
		t.Errorf("%v are served and not asked (-want +got):\n%s", paths(served), diff)
	}
}

// What is told of registries is told to the API server only, which knows the end
// of the path. The pattern, which logs have, is without that.
func TestWhoKnowsTheEndOfThePath(t *testing.T) {
	const webhookSecret = "sesame"
	told := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	for end, want := range map[string]int{webhookSecret: http.StatusAccepted, "sesam": http.StatusNotFound, webhookSecret + "s": http.StatusNotFound} {
		w := httptest.NewRecorder()
		knowing{webhookSecret, told}.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, admission.ValidateTemplate+"/"+end, nil))
		if w.Code != want {
			t.Errorf("with %s at its end: %d, want %d", end, w.Code, want)
		}
	}
	all, err := webhooks{url: "https://127.0.0.1:1", webhookSecret: webhookSecret}.configurations(config.Webhooks)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, u := range all {
		for _, hook := range hooksOf(t, u) {
			if at, _, _ := unstructured.NestedString(hook, "clientConfig", "url"); strings.HasSuffix(at, admission.ValidateTemplate+"/"+webhookSecret) {
				asked++
			}
		}
	}
	if asked != 1 {
		t.Errorf("the API server is told of the path %d times, want once", asked)
	}
}

func TestWhereWebhooksAre(t *testing.T) {
	for name, tt := range map[string]struct {
		webhooks
		wantName, wantURL string
		wantService       map[string]any
		wantNamespaces    []any
	}{
		"this machine":                  {webhooks: webhooks{url: "https://127.0.0.1:1"}, wantName: "tenants.terrier.dev", wantURL: "https://127.0.0.1:1/mutate-operator-kubernetes-tenants-org-v1-tenantregistry"},
		"an address of version six":     {webhooks: webhooks{url: "https://[::1]:1"}, wantName: "tenants.terrier.dev", wantURL: "https://[::1]:1/mutate-operator-kubernetes-tenants-org-v1-tenantregistry"},
		"a name outside of the cluster": {webhooks: webhooks{url: "https://terrier.example.com:8443", hosts: []string{"terrier.example.com"}}, wantName: "tenants.terrier.dev", wantURL: "https://terrier.example.com:8443/mutate-operator-kubernetes-tenants-org-v1-tenantregistry"},
		"a Service, in its namespaces": {
			webhooks: webhooks{url: "https://terrier.example.com:8443", hosts: []string{"terrier.example.com", "terrier.ops.svc"}, namespaces: []string{"a", "b"}, of: "a"},
			wantName: "tenants.terrier.dev.a", wantNamespaces: []any{"a", "b"},
			wantService: map[string]any{"namespace": "ops", "name": "terrier", "port": int64(8443), "path": "/mutate-operator-kubernetes-tenants-org-v1-tenantregistry"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := tt.configurations(config.Webhooks)
			if err != nil {
				t.Fatal(err)
			}
			hook := hooksOf(t, all[0])[0]
			at, _ := hook["clientConfig"].(map[string]any)
			url, _ := at["url"].(string)
			service, _ := at["service"].(map[string]any)
			if diff := cmp.Diff(tt.wantService, service); diff != "" || url != tt.wantURL || all[0].GetName() != tt.wantName {
				t.Errorf("%s is at %q, want %s at %q (-want +got):\n%s", all[0].GetName(), url, tt.wantName, tt.wantURL, diff)
			}
			selector, _ := hook["namespaceSelector"].(map[string]any)
			var namespaces []any
			if selector != nil {
				namespaces = selector["matchExpressions"].([]any)[0].(map[string]any)["values"].([]any)
			}
			if diff := cmp.Diff(tt.wantNamespaces, namespaces); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
		})
	}
}

// The webhooks of a controller keep their name while its first namespace is left out: its rights
// are to that name, and a second configuration would stay when the namespace is back.
func TestWebhooksOfANamespaceThatIsLeftOut(t *testing.T) {
	for name, named := range map[string][]string{"nothing is left out": nil, "the first one is": {"a", "b"}} {
		o := Options{Cluster: &ClusterConfig{Namespaces: []string{"a", "b"}}}
		if named != nil {
			o.Cluster.Namespaces = []string{"b"}
		}
		w := webhooksOf(&parts{Options: o, named: named, http: &server{url: "https://127.0.0.1:1"}})
		all, err := w.configurations(config.Webhooks)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range all {
			if u.GetName() != "tenants.terrier.dev.a" {
				t.Errorf("%s: the configuration is %s", name, u.GetName())
			}
		}
		if !slices.Equal(w.namespaces, o.Cluster.Namespaces) {
			t.Errorf("%s: they are for %q, want %q", name, w.namespaces, o.Cluster.Namespaces)
		}
	}
}

func hooksOf(t *testing.T, u *unstructured.Unstructured) []map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		t.Fatal(err)
	}
	var hooks []map[string]any
	for _, one := range list {
		hooks = append(hooks, one.(map[string]any))
	}
	return hooks
}

func paths(served map[string]http.Handler) []string {
	var all []string
	for path := range served {
		all = append(all, path)
	}
	return all
}

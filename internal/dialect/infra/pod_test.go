package infra

import (
	"fmt"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

// T03: no user controls the engine through its environment, whatever the case of the
// name.
func TestEnvironmentThatControlsTheEngineIsRefused(t *testing.T) {
	for _, name := range []string{
		"TF_CLI_ARGS", "TF_CLI_ARGS_apply", "TF_DATA_DIR", "TF_PLUGIN_CACHE_DIR", "TF_CLI_CONFIG_FILE", "TF_REATTACH_PROVIDERS",
		"TF_LOG", "TF_LOG_PATH", "TF_WORKSPACE", "TF_INPUT", "TF_TOKEN_app_terraform_io", "TF_HTTP_ADDRESS", "TF_ENCRYPTION", "tf_log",
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PATH", "HOME", "TMPDIR", "GIT_SSH_COMMAND", "GIT_CONFIG_GLOBAL",
		"SSH_AUTH_SOCK", "TERRIER_ANYTHING", "BASH_ENV", "GOGC",
	} {
		for _, from := range []string{"value: x", "valueFrom: {secretKeyRef: {name: s, key: k}}"} {
			_, _, _, err := Decode(sourced(t, "runnerPodTemplate: {spec: {env: [{name: GOOD, value: x}, {name: "+name+", "+from+"}]}}"), Defaults{})
			if fault.Of(err) != fault.Denied || !strings.Contains(fmt.Sprint(err), "spec.runnerPodTemplate.spec.env[1]: the environment variable "+name+" ") {
				t.Errorf("%s by %s: %v, want it denied by its name", name, from, err)
			}
		}
	}
	if _, p, _, err := Decode(sourced(t, "runnerPodTemplate: {spec: {env: [{name: TF_VAR_region, value: x}, {name: AWS_REGION, value: x}, {name: https_proxy, value: x}]}}"), Defaults{}); err != nil || len(p.Env) != 3 {
		t.Errorf("variables of a module, of a provider, and one that the operator decides about: %v, %+v; want all", err, p.Env)
	}
}

// The token of a cloud is no part of what shapes a plan.
func TestCloudTokenIsKeptApart(t *testing.T) {
	shape := func(token string) string {
		_, p, _, err := Decode(sourced(t, "cloud: {organization: acme, workspaces: {name: a}, token: "+token+"}"), Defaults{})
		if err != nil || p.Backend.Cloud.Token.Reveal() != token {
			t.Fatalf("the token is not read: %v", err)
		}
		if text := fmt.Sprintf("%+v %+v", p, *p.Backend.Cloud); strings.Contains(text, token) {
			t.Errorf("the program says its token: %s", text)
		}
		return p.Shape()
	}
	if shape("token-one") != shape("token-two") {
		t.Error("a renewed token is another plan")
	}
}

// The template of a pod is all that the object says about pods but the environment, which
// the controller resolves and checks, and which may hold secrets.
func TestPodTemplate(t *testing.T) {
	pod := func(spec string) (string, string) {
		_, p, _, err := Decode(sourced(t, spec), Defaults{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Pod.Account, string(p.Pod.Template)
	}
	for name, tt := range map[string]struct{ spec, account, template string }{
		"nothing":                {"path: ./a", "", ""},
		"the default account":    {"serviceAccountName: tf-runner", "", ""},
		"another account":        {"serviceAccountName: net", "net", ""},
		"environment alone":      {"runnerPodTemplate: {spec: {env: [{name: A, value: canary}], envFrom: [{secretRef: {name: s}}]}}", "", ""},
		"labels and annotations": {"runnerPodTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}}", "", `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}},"spec":{"containers":[{"name":"terrier-runner","resources":{}}]}}`},
		"settings of the container": {
			"runnerPodTemplate: {spec: {image: i, resources: {limits: {memory: 1Gi}}, env: [{name: A, value: canary}], securityContext: {runAsUser: 5}, volumeMounts: [{name: v, mountPath: /v}]}}", "",
			`{"metadata":{},"spec":{"containers":[{"name":"terrier-runner","image":"i","resources":{"limits":{"memory":"1Gi"}},"volumeMounts":[{"name":"v","mountPath":"/v"}],"securityContext":{"runAsUser":5}}]}}`,
		},
		"settings of the pod": {
			"runnerPodTemplate: {spec: {nodeSelector: {disk: ssd}, tolerations: [{key: k}], hostAliases: [{ip: 10.0.0.1}], priorityClassName: p, volumes: [{name: v, emptyDir: {}}], initContainers: [{name: c, image: i}]}}", "",
			`{"metadata":{},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"initContainers":[{"name":"c","image":"i","resources":{}}],"containers":[{"name":"terrier-runner","resources":{}}],"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"k"}],"hostAliases":[{"ip":"10.0.0.1"}],"priorityClassName":"p"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			account, template := pod(tt.spec)
			if account != tt.account || template != tt.template {
				t.Errorf("account %q, template %s; want %q, %s", account, template, tt.account, tt.template)
			}
		})
	}
}

// A pod shapes no plan: a pending plan stays valid when another pod is asked for.
func TestPodIsNoPartOfTheShape(t *testing.T) {
	shape := func(spec string) string {
		_, p, _, err := Decode(sourced(t, spec), Defaults{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Shape()
	}
	if shape("path: ./a") != shape("{path: ./a, serviceAccountName: net, runnerPodTemplate: {spec: {image: other, nodeSelector: {a: b}}}}") {
		t.Error("another pod is another plan")
	}
}

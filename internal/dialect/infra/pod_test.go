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

package query

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/plan"
)

func TestManifestsMaskValues(t *testing.T) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(`
spec:
  vars:
  - {name: region, value: eu}
  - {name: token, value: {a: hunter2}}
  - {name: later, valueFrom: {secretKeyRef: {name: s, key: k}}}
  runnerPodTemplate:
    spec:
      env: [{name: CLOUD, value: hunter2}, {name: FROM, valueFrom: {secretKeyRef: {name: s, key: k}}}]
      containers: [{name: runner, env: [{name: CLOUD, value: hunter2}]}]
  values: {hcl: 'provider "x" { token = "hunter2" }'}
  backendConfig: {customConfiguration: 'backend "s3" { secret_key = "hunter2" }'}
`), &object); err != nil {
		t.Fatal(err)
	}
	if got := maskObject(object, func(name string) bool { return name == "token" }); got != 5 {
		t.Errorf("%d values are masked, want 5", got)
	}
	b, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(b); strings.Contains(text, "hunter2") || !strings.Contains(text, "value: eu") || !strings.Contains(text, "secretKeyRef") {
		t.Errorf("the object is shown as\n%s", text)
	}
}

func TestLiteralSecretsOfAModule(t *testing.T) {
	for in, want := range map[string]string{
		`password = "p"`:               `password = "` + plan.Mask + `"`,
		`input = { api_key: "a\"b" }`:  `input = { api_key: "` + plan.Mask + `" }`,
		`"db_password" = "p"`:          `"db_password" = "` + plan.Mask + `"`,
		`secret_key = "p"`:             `secret_key = "` + plan.Mask + `"`,
		`password = var.password`:      `password = var.password`,
		`password = "${var.password}"`: `password = "${var.password}"`,
		`password = ""`:                `password = ""`,
		`name = "token"`:               `name = "token"`,
		`tokens_per_minute = 3`:        `tokens_per_minute = 3`,
	} {
		if got, _ := maskHCL(in); got != want {
			t.Errorf("maskHCL(%s) = %s, want %s", in, got, want)
		}
	}
	if diff := cmp.Diff(nested(map[string]any{"a": map[string]any{"b": 1}}, "a", "b"), any(1)); diff != "" {
		t.Error(diff)
	}
}

package query

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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

// A secret may also stand beside its name, and in a URL.
func TestManifestsMaskPairsAndURLs(t *testing.T) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(`
metadata: {annotations: {example.com/from: "https://robot:hunter2@git.example.com/shown.git"}}
spec:
  vars:
  - {name: env, value: [{name: DB_PASSWORD, value: hunter2}, {key: api-token, value: hunter2}, {name: REGION, value: shown}]}
  - {name: hook, value: "https://hooks.example.com/shown?token=hunter2"}
  webhooks: [{url: "https://hunter2@hooks.example.com/shown"}]
  values:
    hcl: |
      module "a" { source = "git::https://hunter2@git.example.com/shown.git?ref=v1" }
      resource "helm_release" "b" {
        set {
          name  = "auth.password"
          value = "hunter2"
        }
      }
status: {conditions: [{message: "cloning https://robot:hunter2@git.example.com/shown.git"}]}
`), &object); err != nil {
		t.Fatal(err)
	}
	if got := maskObject(object, func(string) bool { return false }); got != 8 {
		t.Errorf("%d values are masked, want 8", got)
	}
	b, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(b); strings.Contains(text, "hunter2") || strings.Count(text, "shown") != 6 || !strings.Contains(text, "?ref=v1") {
		t.Errorf("the object is shown as\n%s", text)
	}
}

// Not only values that stand in a place of their own are masked, but also those with
// names that say what they are, and copies of the object are left out.
func TestManifestsMaskWhatNamesSay(t *testing.T) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(`
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"cloud":{"token":"hunter2"}}}'
    kapp.k14s.io/original: 'hunter2'
    example.com/copy: '{"spec":{"cloud":{"token":"hunter2"}}}'
    example.com/api-token: hunter2
    example.com/team: shown
spec:
  cloud: {organization: shown, token: hunter2}
  enterprise: {license: {token: hunter2}}
  vars:
  - {name: db, value: {user: shown, password: hunter2, nodes: [{secret_string: hunter2}]}}
  values:
    db: {user: shown, password: hunter2}
    hcl: |
      variable "p" {
        sensitive = true
        default   = "hunter2"
      }
      locals { connection_string = "a;hunter2;${var.p}" }
  backendConfig: {customConfiguration: 'backend "pg" { conn_str = "postgres://u:hunter2@db" '}
`), &object); err != nil {
		t.Fatal(err)
	}
	maskObject(object, func(string) bool { return false })
	b, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if strings.Contains(text, "hunter2") || strings.Count(text, "shown") != 4 || !strings.Contains(text, "cannot be parsed") {
		t.Errorf("the object is shown as\n%s", text)
	}
	if nested(map[string]any{"a": map[string]any{"b": 1}}, "a", "b") != 1 {
		t.Error("a nested value is not found")
	}
}

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lines of a file that a run left in a directory of the test's.
func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// absent searches for a secret in all files of the platform once the stack has
// settled: the inputs of a run are removed with it.
func absent(t *testing.T, c *testkit.Cluster, stack string, secrets ...string) {
	t.Helper()
	c.Patch(t, stack, `{"spec":{"suspend":true}}`)
	c.Await(t, stack, func(s *v1alpha2.Terraform) error {
		if s.Status.Terrier.Phase != "Suspended" {
			return errNot("at rest")
		}
		return nil
	})
	noRuns(t, platform(t))
	err := filepath.WalkDir(platform(t).Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		for _, s := range secrets {
			if bytes.Contains(content, []byte(s)) {
				t.Errorf("%s holds %q", path, s)
			}
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Files out of Secrets, the environment, and fields of the object: what a run
// is given, at its apply and, from the record of it, at its destroy.
func TestRunsGetFilesAndEnvironment(t *testing.T) {
	c := cluster(t)
	dir := platform(t).Shared(t)
	c.PutSecret(t, "keys", map[string]string{"cred": "canary-of-a-file-51d7", "pem": "canary-of-a-key-51d7"})
	c.PutSecret(t, "env", map[string]string{"FROM_ALL": "canary-of-env-51d7", "not.a.name": "x"})
	c.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: env}\ndata: {REGION: north}\n")
	const told = `echo "$P_FROM_ALL $REGION $URL $ONE $TEAM" >> %[1]s; cat ~/.conf/cred keys/a-key.pem >> %[1]s; stat -c %%a ~/.conf/cred keys/a-key.pem >> %[1]s`
	apply, destroy := filepath.Join(dir, "apply"), filepath.Join(dir, "destroy")
	c.Apply(t, inline("stack", kept+`
vars:
- {name: me, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: where, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
writeOutputsToSecret: {name: out}
fileMappings:
- {secretRef: {name: keys, key: cred}, location: home, path: .conf/cred}
- {secretRef: {name: keys, key: pem}, location: workspace, path: keys/a-key.pem}
runnerPodTemplate:
  spec:
    image: example.com/runner
    resources: {limits: {cpu: 1500m, memory: 2Gi}}
    envFrom:
    - {secretRef: {name: env}, prefix: P_}
    - {configMapRef: {name: nope, optional: true}}
    env:
    - {name: ONE, valueFrom: {secretKeyRef: {name: keys, key: pem}}}
    - {name: REGION, valueFrom: {configMapKeyRef: {name: env, key: REGION}}}
    - {name: URL, value: "https://$(P_FROM_ALL)@$(REGION)/$(LATER)"}
    - {name: LATER, value: x}
    - {name: TEAM, valueFrom: {fieldRef: {fieldPath: "metadata.labels['team']"}}}`, `
variable "me" {}
variable "where" {}
output "who" { value = "${var.where}/${var.me}" }
output "mode" { value = fileexists("keys/a-key.pem") }
resource "terraform_data" "it" {
  input = "`+destroy+`"
  provisioner "local-exec" {
    command = <<EOT
`+fmt.Sprintf(told, apply)+`; echo $GOMAXPROCS >> `+apply+`
EOT
  }
  provisioner "local-exec" {
    when    = destroy
    command = <<EOT
`+fmt.Sprintf(told, "${self.input}")+`
EOT
  }
}
`))
	s := c.AwaitReady(t, "stack")
	want := []string{
		"canary-of-env-51d7 north https://canary-of-env-51d7@north/$(LATER) canary-of-a-key-51d7", // no team
		"canary-of-a-file-51d7canary-of-a-key-51d7600", "600", "2",
	}
	if got := lines(t, apply); !slices.Equal(trimmed(got), want) {
		t.Errorf("the apply was given %q, want %q", got, want)
	}
	if got := c.Secret(t, "out")["who"]; got != c.Namespace+"/stack" {
		t.Errorf("the object's fields are %q", got)
	}
	if ignored := condition(s, "FieldsIgnored").Message; !strings.Contains(ignored, "spec.runnerPodTemplate.spec.image") || strings.Contains(ignored, "env") || strings.Contains(ignored, "resources") {
		t.Errorf("FieldsIgnored says %q, want the image and nothing that works", ignored)
	}
	if log := logOfApply(t, c); strings.Contains(log, "canary-of") {
		t.Errorf("the log of the apply holds a secret:\n%s", log)
	}
	absent(t, c, "stack", "canary-of-a-file-51d7", "canary-of-a-key-51d7", "canary-of-env-51d7")

	c.Kubectl(t, "delete", "secret/keys", "secret/env", "configmap/env")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	if got := lines(t, destroy); !slices.Equal(trimmed(got), want[:3]) {
		t.Errorf("the destroy was given %q, want %q", got, want[:3])
	}
}

func trimmed(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = strings.TrimSpace(s)
	}
	return out
}

// What is missing is waited for, by its name, and what controls the engine is
// refused.
func TestInputsThatAreMissingAreNamed(t *testing.T) {
	c := cluster(t)
	c.PutSecret(t, "s", map[string]string{"key": "v", "a.tfrc": "plugin_cache_dir = \"/tmp\"\n"})
	c.PutSecret(t, "rc", map[string]string{"a.tfrc": "provider_installation {\n  dev_overrides {\n  }\n}\n"})
	c.PutSecret(t, "evil", map[string]string{"TF_CLI_ARGS": "-destroy"})
	for name, tt := range map[string]struct{ spec, want string }{
		"file":    {"fileMappings: [{secretRef: {name: s, key: nope}, location: home, path: x}]", `fileMappings[0]: Secret s has no key "nope"`},
		"secret":  {"fileMappings: [{secretRef: {name: nope, key: key}, location: home, path: x}]", "fileMappings[0]: "},
		"over":    {"fileMappings: [{secretRef: {name: s, key: key}, location: workspace, path: .terraform/environment}]", "spec.fileMappings[0].path: .terraform/environment"},
		"main":    {"fileMappings: [{secretRef: {name: s, key: key}, location: workspace, path: main.tf}]", "fileMappings: main.tf"},
		"setting": {"backendConfig: {customConfiguration: 'backend \"http\" {}'}\nbackendConfigsFrom: [{kind: Secret, name: s, keys: [nope]}]", `backendConfigsFrom[0]: Secret s has no key "nope"`},
		"rc":      {"cliConfigSecretRef: {name: rc}", "cliConfigSecretRef: line 2: provider_installation: dev_overrides"},
		"rcs":     {"cliConfigSecretRef: {name: s}", "must have exactly one key, which ends in .tfrc"},
		"away":    {"cliConfigSecretRef: {name: rc, namespace: elsewhere}", "another namespace"},
		"env":     {"runnerPodTemplate: {spec: {env: [{name: LD_PRELOAD, value: x}]}}", "spec.runnerPodTemplate.spec.env[0]: the environment variable LD_PRELOAD"},
		"envfrom": {"runnerPodTemplate: {spec: {envFrom: [{secretRef: {name: evil}}]}}", "runnerPodTemplate.spec.envFrom[0]: Secret evil: the environment variable TF_CLI_ARGS"},
		"envkey":  {"runnerPodTemplate: {spec: {env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: nope}}}]}}", `runnerPodTemplate.spec.env[0]: Secret s has no key "nope"`},
		"field":   {"vars: [{name: a, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]", "spec.vars[0].valueFrom.fieldRef.fieldPath"},
	} {
		c.Apply(t, inline(name, "approvePlan: auto\nretryInterval: 1h\n"+tt.spec, "output \"x\" { value = 1 }\n"))
		c.Await(t, name, func(s *v1alpha2.Terraform) error {
			if m := message(s); !strings.Contains(m, tt.want) {
				return fmt.Errorf("the message is %q, want %q", m, tt.want)
			}
			return nil
		})
	}
	// A Secret that is created, or fixed, is noticed at once.
	c.PutSecret(t, "s", map[string]string{"key": "v", "nope": "here"})
	c.AwaitReady(t, "file")
}

// A credential that is renewed while a plan waits voids no approval, and the
// plan is carried out with the newest; what says where things are voids it.
func TestRenewedCredentialsKeepAnApproval(t *testing.T) {
	c := cluster(t)
	dir := platform(t).Shared(t)
	module := `
resource "terraform_data" "it" {
  provisioner "local-exec" { command = "echo $AWS_SESSION_TOKEN $API_TOKEN $AWS_REGION >> ` + dir + `/used" }
}
`
	put := func(token, region string) {
		c.PutSecret(t, "creds", map[string]string{"AWS_SESSION_TOKEN": "session-" + token, "AWS_REGION": region})
		c.PutSecret(t, "api", map[string]string{"token": "api-" + token})
	}
	put("one", "north")
	c.Apply(t, inline("stack", `interval: 1h
varsFrom: [{kind: Secret, name: creds}]
runnerPodTemplate: {spec: {env: [{name: API_TOKEN, valueFrom: {secretKeyRef: {name: api, key: token}}}]}}`, module))
	first := c.AwaitPending(t, "stack")
	put("two", "north")
	c.Patch(t, "stack", `{"metadata":{"labels":{"seen":"two"}}}`) // reconciled again
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+first.Status.Plan.Pending+`"}}`)
	c.AwaitReady(t, "stack")
	if got := lines(t, filepath.Join(dir, "used")); !slices.Equal(got, []string{"session-two api-two north"}) {
		t.Errorf("the apply used %q, want the renewed credentials, once", got)
	}

	c.Apply(t, inline("other", "interval: 1h\nvarsFrom: [{kind: Secret, name: creds}]", module))
	second := c.AwaitPending(t, "other").Status.Plan.Pending
	put("two", "south")
	c.Await(t, "other", func(s *v1alpha2.Terraform) error {
		if p := s.Status.Plan.Pending; p == "" || p == second {
			return errNot("planned anew for the other region")
		}
		return nil
	})
}

// Settings that complete a backend reach it through a file, and stay nowhere.
func TestBackendSettingsComeFromASecret(t *testing.T) {
	c := cluster(t)
	states := &stateServer{}
	var refused sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "canary-of-a-backend \"${x}" {
			refused.Store(r.Method, password)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		states.ServeHTTP(w, r)
	}))
	defer server.Close()
	c.PutSecret(t, "backend", map[string]string{"username": "me", "password": "canary-of-a-backend \"${x}"})
	c.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: backend}\ndata: {address: \""+server.URL+"\", lock_address: \""+server.URL+"\", unlock_address: \""+server.URL+"\"}\n")
	watch := watchArguments(platform(t))
	c.Apply(t, inline("stack", kept+`
backendConfig: {customConfiguration: 'backend "http" {}'}
backendConfigsFrom:
- {kind: ConfigMap, name: backend}
- {kind: Secret, name: backend, keys: [username, password]}
- {kind: Secret, name: nope, optional: true}`, "resource \"terraform_data\" \"it\" { input = 1 }\n"))
	c.AwaitReady(t, "stack")
	refused.Range(func(method, password any) bool {
		t.Errorf("%s came with the password %q", method, password)
		return true
	})
	if args := watch(); strings.Contains(args, "canary-of-a-backend") || !strings.Contains(args, "init") {
		t.Errorf("a command line holds the password, or none was seen: %s", args)
	}
	states.mu.Lock()
	if !strings.Contains(string(states.state), "terraform_data") {
		t.Errorf("the backend holds %.80q", states.state)
	}
	states.mu.Unlock()
	absent(t, c, "stack", "canary-of-a-backend")
	c.Kubectl(t, "delete", "secret/backend", "configmap/backend")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	states.mu.Lock()
	defer states.mu.Unlock()
	if strings.Contains(string(states.state), `"type": "terraform_data"`) {
		t.Errorf("after the destroy the backend holds %s", states.state)
	}
}

// A module's main.tf.tpl is rendered over the variables, and data in it stays
// data.
func TestTemplateOfMain(t *testing.T) {
	c := cluster(t)
	g := testkit.NewGit(t)
	const hostile = "it's \"quoted\"\n}\n${file(\"/etc/passwd\")} %{ if true }"
	g.Commit(map[string]string{
		"net/main.tf":       "this is no configuration\n",
		"net/variables.tf":  "variable \"region\" {}\nvariable \"text\" {}\nvariable \"size\" { default = 0 }\nvariable \"values\" { default = null }\n",
		"net/main.tf.tpl":   "{{ .block }}\nvariable \"AWS_TOKEN\" { default = \"\" }\n{{ range .Values.names }}output {{ quote . }} { value = \"{{ $.region | upper }}-{{ . }}\" }\n{{ end }}output \"text\" { value = \"<{{ .text }}>\" }\noutput \"quoted\" { value = {{ quote .text }} }\noutput \"size\" { value = {{ .size }} + 1 }\n",
		"net/override.tf":   "terraform {\n  backend \"local\" {}\n}\n",
		"other/main.tf.tpl": "output \"x\" { value = {{ .text }} }\n",
		"cloud/main.tf.tpl": "output \"x\" { value = {{ env \"HOME\" | quote }} }\n",
	})
	c.PutSecret(t, "inputs", map[string]string{"text": hostile, "size": "41", "AWS_TOKEN": "declared"})
	stack := func(name, path string) string {
		return g.Manifest("code") + `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: ` + name + `}
spec:
  approvePlan: auto
  interval: 1h
  path: ` + path + `
  sourceRef: {kind: GitRepository, name: code}
  vars:
  - {name: region, value: eu}
  - {name: block, value: 'output "block" { value = 1 }'}
  values: {names: [a, b]}
  varsFrom: [{kind: Secret, name: inputs}]
  writeOutputsToSecret: {name: ` + name + `-out}
`
	}
	c.Apply(t, stack("stack", "net"))
	c.AwaitReady(t, "stack")
	out := c.Secret(t, "stack-out")
	for name, want := range map[string]string{"a": "EU-a", "b": "EU-b", "block": "1", "size": "42", "text": "<" + hostile + ">", "quoted": hostile} {
		if out[name] != want {
			t.Errorf("the output %s is %q, want %q", name, out[name], want)
		}
	}
	for name, want := range map[string]string{"other": "main.tf.tpl: line 1: a value that is not written in the object stands outside of quotes", "cloud": `function "env" not defined`} {
		c.Apply(t, stack(name, name))
		s := c.Await(t, name, func(s *v1alpha2.Terraform) error {
			if m := message(s); !strings.Contains(m, want) {
				return fmt.Errorf("the message is %q, want %q", m, want)
			}
			return nil
		})
		if strings.Contains(message(s), "/etc/passwd") {
			t.Errorf("the message says the value: %q", message(s))
		}
	}
	// A changed input is another module.
	c.PutSecret(t, "inputs", map[string]string{"text": "calm", "size": "1"})
	c.Await(t, "stack", func(*v1alpha2.Terraform) error {
		if got := c.Secret(t, "stack-out")["size"]; got != "2" {
			return fmt.Errorf("the size is %s, want 2", got)
		}
		return nil
	})
}

// registry is a module registry that requires a token, and a cloud that knows no
// user.
type registry struct {
	mu     sync.Mutex
	tokens map[string]string // by the path that was asked for
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.tokens[q.URL.Path] = q.Header.Get("Authorization")
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch q.URL.Path {
	case "/modules/acme/net/any/versions":
		fmt.Fprint(w, `{"modules":[{"versions":[{"version":"1.2.3"}]}]}`)
	case "/modules/acme/net/any/1.2.3/download":
		w.Header().Set("X-Terraform-Get", "http://"+q.Host+"/net.tar.gz")
		w.WriteHeader(http.StatusNoContent)
	case "/net.tar.gz":
		z := gzip.NewWriter(w)
		archive := tar.NewWriter(z)
		const module = "output \"from\" { value = \"the registry\" }\n"
		_ = archive.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(module))})
		_, _ = archive.Write([]byte(module))
		_, _ = archive.Close(), z.Close()
	case "/api/v2/ping":
		w.Header().Set("TFP-API-Version", "2.5")
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (r *registry) token(t *testing.T, path string) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	token, asked := r.tokens[path]
	if !asked {
		t.Errorf("nobody asked for %s, only for %v", path, r.tokens)
	}
	return token
}

// A stack's own configuration of the command line takes its tokens to their
// hosts, and the cloud's token goes the same way.
func TestCommandLineOfAStack(t *testing.T) {
	c := cluster(t)
	r := &registry{tokens: map[string]string{}}
	server := httptest.NewServer(r)
	defer server.Close()
	host := "modules.example.com"
	c.PutSecret(t, "rc", map[string]string{"any.tfrc": `
credentials "` + host + `" {
  token = "canary-of-a-registry"
}
host "` + host + `" {
  services = {
    "modules.v1" = "` + server.URL + `/modules/"
    "tfe.v2"     = "` + server.URL + `/api/v2/"
    "tfe.v2.1"   = "` + server.URL + `/api/v2/"
    "tfe.v2.2"   = "` + server.URL + `/api/v2/"
  }
}
`})
	c.Apply(t, inline("stack", kept+"\ncliConfigSecretRef: {name: rc}\nwriteOutputsToSecret: {name: out}", `
module "net" {
  source  = "`+host+`/acme/net/any"
  version = "1.2.3"
}
resource "random_pet" "still" {}
output "from" { value = module.net.from }
`))
	c.AwaitReady(t, "stack")
	if got := c.Secret(t, "out")["from"]; got != "the registry" {
		t.Errorf("the module says %q", got)
	}
	if got := r.token(t, "/modules/acme/net/any/versions"); got != "Bearer canary-of-a-registry" {
		t.Errorf("the registry was shown %q", got)
	}
	absent(t, c, "stack", "canary-of-a-registry")

	c.Apply(t, inline("remote", `approvePlan: auto
retryInterval: 1h
cliConfigSecretRef: {name: rc}
cloud:
  organization: acme-of-nowhere
  hostname: `+host+`
  token: canary-of-a-cloud
  workspaces: {name: prod}`, "output \"x\" { value = 1 }\n"))
	s := c.Await(t, "remote", func(s *v1alpha2.Terraform) error {
		if m := message(s); !strings.Contains(m, "acme-of-nowhere") {
			return fmt.Errorf("the message is %q, want one about the organization", m)
		}
		return nil
	})
	if strings.Contains(message(s), "canary") {
		t.Errorf("the message is %q", message(s))
	}
	if got := r.token(t, "/api/v2/organizations/acme-of-nowhere/entitlement-set"); got != "Bearer canary-of-a-cloud" {
		t.Errorf("the cloud was shown %q", got)
	}
}

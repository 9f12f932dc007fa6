package infra

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestDecodeProgram(t *testing.T) {
	managed := stack.Backend{Kind: stack.Managed, Suffix: "net", InCluster: true}
	base := stack.Configuration{
		Source: &stack.Ref{Kind: "GitRepository", Name: "modules"}, Backend: managed, Upgrade: true,
	}
	for name, tt := range map[string]struct {
		spec string
		want func(*stack.Configuration)
	}{
		"nothing but a source":           {``, func(*stack.Configuration) {}},
		"a path is below the source":     {`path: ./a/../b/`, func(p *stack.Configuration) { p.Path = "b" }},
		"a path cannot leave the source": {`path: ../../etc`, func(p *stack.Configuration) { p.Path = "etc" }},
		"the root of the source":         {`path: ./`, func(*stack.Configuration) {}},
		"values with a source are a variable": {`values: {hcl: x}`, func(p *stack.Configuration) {
			p.Values = json.RawMessage(`{"hcl":"x"}`)
		}},
		"variables": {`vars: [{name: a, value: {b: [1]}}, {name: c, value: null}, {name: d}]`, func(p *stack.Configuration) {
			p.Vars = []stack.Var{
				{Name: "a", Value: json.RawMessage(`{"b":[1]}`)},
				{Name: "c", Value: json.RawMessage(`null`)},
				{Name: "d", Value: json.RawMessage(`null`)},
			}
		}},
		"variables by reference": {`
vars:
- name: a
  valueFrom: {secretKeyRef: {name: s, key: k}}
- name: b
  valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}
- name: c
  value: 1
  valueFrom: {secretKeyRef: {name: s, key: k}}
- name: d
  valueFrom: {fieldRef: {fieldPath: metadata.name}}`, func(p *stack.Configuration) {
			p.Vars = []stack.Var{
				{Name: "a", Secret: &stack.KeyRef{Name: "s", Key: "k"}},
				{Name: "b", Config: &stack.KeyRef{Name: "c", Key: "k", Optional: true}},
				{Name: "c", Value: json.RawMessage(`1`)},
				{Name: "d", Field: "metadata.name"},
			}
		}},
		"files": {`fileMappings: [{secretRef: {name: s, key: k}, location: home, path: /.ssh/id}, {secretRef: {name: s, key: k}, location: workspace, path: a/../keys/k.pem}]`, func(p *stack.Configuration) {
			key := stack.KeyRef{Name: "s", Key: "k"}
			p.Files = []stack.File{{Secret: key, Home: true, Path: ".ssh/id"}, {Secret: key, Path: "keys/k.pem"}}
		}},
		"a cloud wins over a backend": {`{backendConfig: {customConfiguration: x}, cloud: {organization: acme, workspaces: {tags: [a]}, hostname: tf.example.com}}`, func(p *stack.Configuration) {
			p.Backend = stack.Backend{Kind: stack.Remote, Cloud: &stack.Cloud{Organization: "acme", Tags: []string{"a"}, Hostname: "tf.example.com"}}
		}},
		"what completes a backend of the user's": {`{backendConfig: {customConfiguration: x}, backendConfigsFrom: [{kind: Secret, name: s, keys: [k], optional: true}]}`, func(p *stack.Configuration) {
			p.Backend = stack.Backend{Kind: stack.Custom, Custom: "x"}
			p.Completes = []stack.ConfigFrom{{Kind: "Secret", Name: "s", Keys: []string{"k"}, Optional: true}}
		}},
		"what completes the default backend makes it the engine's": {`backendConfigsFrom: [{kind: ConfigMap, name: c}]`, func(p *stack.Configuration) {
			p.Backend.Kind, p.Completes = stack.Kubernetes, []stack.ConfigFrom{{Kind: "ConfigMap", Name: "c"}}
		}},
		"a command line of its own": {`cliConfigSecretRef: {name: rc, namespace: infra}`, func(p *stack.Configuration) {
			p.CLIConfig = &stack.Ref{Kind: "Secret", Namespace: "infra", Name: "rc"}
		}},
		"an environment": {`
runnerPodTemplate:
  spec:
    envFrom: [{prefix: P_, secretRef: {name: s}}, {configMapRef: {name: c, optional: true}}]
    env:
    - {name: A, value: $(P_X)}
    - {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}
    - {name: C, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}
    - {name: D, valueFrom: {fieldRef: {fieldPath: "metadata.labels['team']"}}}`, func(p *stack.Configuration) {
			p.EnvFrom = []stack.EnvFrom{{Kind: "Secret", Name: "s", Prefix: "P_"}, {Kind: "ConfigMap", Name: "c", Optional: true}}
			p.Env = []stack.EnvVar{
				{Name: "A", Value: "$(P_X)"}, {Name: "B", Secret: &stack.KeyRef{Name: "s", Key: "k"}},
				{Name: "C", Config: &stack.KeyRef{Name: "c", Key: "k", Optional: true}}, {Name: "D", Field: "metadata.labels['team']"},
			}
		}},
		"resources": {`runnerPodTemplate: {spec: {resources: {limits: {memory: 1Gi, cpu: 1500m}, requests: {memory: 2Gi}}}}`, func(p *stack.Configuration) {
			p.Memory, p.CPUs = 1<<30, 2
			p.Pod.Template = json.RawMessage(`{"metadata":{},"spec":{"containers":[{"name":"terrier-runner","resources":{"limits":{"cpu":"1500m","memory":"1Gi"},"requests":{"memory":"2Gi"}}}]}}`)
		}},
		"a grace period":   {`runnerTerminationGracePeriodSeconds: 60`, func(p *stack.Configuration) { p.Grace = time.Minute }},
		"no grace is none": {`runnerTerminationGracePeriodSeconds: -1`, func(*stack.Configuration) {}},
		"variables from elsewhere": {`varsFrom: [{kind: Secret, name: s, varsKeys: ["a:b"], optional: true}, {kind: ConfigMap, name: c}]`, func(p *stack.Configuration) {
			p.VarsFrom = []stack.VarsFrom{{Kind: "Secret", Name: "s", Keys: []string{"a:b"}, Optional: true}, {Kind: "ConfigMap", Name: "c"}}
		}},
		"variable files": {`tfVarsFiles: [./env/a.tfvars, ../b.tfvars]`, func(p *stack.Configuration) { p.VarFiles = []string{"env/a.tfvars", "b.tfvars"} }},
		"inputs":         {`readInputsFromSecrets: [{name: s, as: base}]`, func(p *stack.Configuration) { p.Inputs = []stack.Input{{Secret: "s", As: "base"}} }},
		"dependencies": {`dependsOn: [{name: a}, {name: b, namespace: infra}]`, func(p *stack.Configuration) {
			p.DependsOn = []stack.Ref{{Kind: "Terraform", Name: "a"}, {Kind: "Terraform", Name: "b", Namespace: "infra"}}
		}},
		"the default workspace has no name": {`workspace: default`, func(*stack.Configuration) {}},
		"another workspace":                 {`workspace: stage`, func(p *stack.Configuration) { p.Workspace = "stage" }},
		"targets and parallelism":           {`{targets: [module.a], parallelism: 4}`, func(p *stack.Configuration) { p.Targets, p.Parallelism = []string{"module.a"}, 4 }},
		"negative parallelism is none":      {`parallelism: -1`, func(*stack.Configuration) {}},
		"destroy":                           {`destroy: true`, func(p *stack.Configuration) { p.Destroy = true }},
		"no upgrade":                        {`upgradeOnInit: false`, func(p *stack.Configuration) { p.Upgrade = false }},
		"plans without a lock":              {`plan: {lock: false}`, func(p *stack.Configuration) { p.NoPlanLock = true }},
		"plans with a lock":                 {`plan: {lock: true}`, func(*stack.Configuration) {}},
		"a lock is waited for":              {`tfstate: {lockTimeout: 1m}`, func(p *stack.Configuration) { p.LockTimeout = time.Minute }},
		"plans for people":                  {`storeReadablePlan: human`, func(p *stack.Configuration) { p.Readable = stack.ReadableHuman }},
		"plans for programs":                {`storeReadablePlan: json`, func(p *stack.Configuration) { p.Readable = stack.ReadableJSON }},
		"plans for neither":                 {`storeReadablePlan: none`, func(*stack.Configuration) {}},
		"outputs": {`writeOutputsToSecret: {name: s, outputs: ["a:b"], labels: {l: v}, annotations: {a: v}}`, func(p *stack.Configuration) {
			p.Outputs = &stack.Outputs{Secret: "s", Select: []string{"a:b"}, Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"}}
		}},
		"the module's own backend": {`backendConfig: {disable: true, customConfiguration: x}`, func(p *stack.Configuration) { p.Backend = stack.Backend{Kind: stack.Declared} }},
		"a backend of the user's":  {`backendConfig: {customConfiguration: x, secretSuffix: y, configPath: z}`, func(p *stack.Configuration) { p.Backend = stack.Backend{Kind: stack.Custom, Custom: "x"} }},
		"another Secret": {`backendConfig: {secretSuffix: s, labels: {l: v}}`, func(p *stack.Configuration) {
			p.Backend = stack.Backend{Kind: stack.Managed, Suffix: "s", Labels: map[string]string{"l": "v"}}
		}},
		"an empty backend": {`backendConfig: {}`, func(p *stack.Configuration) { p.Backend.InCluster = false }},
		"another cluster": {`backendConfig: {configPath: /kubeconfig, secretSuffix: s}`, func(p *stack.Configuration) {
			p.Backend = stack.Backend{Kind: stack.Kubernetes, Suffix: "s", ConfigPath: "/kubeconfig"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			tt.want(&want)
			_, got, _, err := Decode(sourced(t, tt.spec), Defaults{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want, cmp.AllowUnexported(secret.Text{})); diff != "" {
				t.Errorf("program (-got +want):\n%s", diff)
			}
		})
	}
}

func TestDecodeInlineModule(t *testing.T) {
	_, got, _, err := Decode(object(t, `{values: {hcl: "output \"x\" { value = 1 }"}, path: ./}`), Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Source != nil || got.Values != nil || got.Path != "" || got.Inline != `output "x" { value = 1 }` {
		t.Errorf("program = %+v, want the text inline and nothing else", got)
	}
}

// Every manifest that Terrier was asked for in is a program, in place or from
// its source.
func TestDecodeSeeds(t *testing.T) {
	for _, name := range seeds(t) {
		obj := manifest(t, name)
		_, p, _, err := Decode(obj, Defaults{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (p.Source == nil) != (p.Inline != "") {
			t.Errorf("%s: source %v, inline %q", name, p.Source, p.Inline)
		}
	}
}

func TestWithinNeverLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringMatching(`[./a]{0,12}`).Draw(t, "path")
		got := within(p)
		if strings.HasPrefix(got, "/") || got == ".." || strings.HasPrefix(got, "../") || strings.HasSuffix(got, "/") || got == "." {
			t.Fatalf("within(%q) = %q", p, got)
		}
	})
}

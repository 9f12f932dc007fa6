package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: x, namespace: default}\n"

const source = "  sourceRef: {kind: GitRepository, name: modules}\n"

func TestTerraformDefaults(t *testing.T) {
	s := newServer(t)
	for name, tt := range map[string]struct{ spec, want string }{
		"a spec with nothing but a source": {source, `
interval: 10m
retryStrategy: StaticInterval
storeReadablePlan: none
upgradeOnInit: true
workspace: default
serviceAccountName: tf-runner
alwaysCleanupRunnerPod: true
runnerTerminationGracePeriodSeconds: 30
sourceRef: {kind: GitRepository, name: modules}`},
		"explicit values stay, false and zero too": {source + `
  interval: 1h
  retryStrategy: ExponentialBackoff
  storeReadablePlan: json
  upgradeOnInit: false
  workspace: stage
  serviceAccountName: mine
  alwaysCleanupRunnerPod: false
  runnerTerminationGracePeriodSeconds: 0
`, `
interval: 1h
retryStrategy: ExponentialBackoff
storeReadablePlan: json
upgradeOnInit: false
workspace: stage
serviceAccountName: mine
alwaysCleanupRunnerPod: false
runnerTerminationGracePeriodSeconds: 0
sourceRef: {kind: GitRepository, name: modules}`},
		"parts that are given have defaults of their own": {source + `
  tfstate: {}
  healthChecks: [{name: web, type: http, url: "http://web"}]
  webhooks: [{url: "https://policy", testExpression: "${{ .passed }}"}]
`, `
interval: 10m
retryStrategy: StaticInterval
storeReadablePlan: none
upgradeOnInit: true
workspace: default
serviceAccountName: tf-runner
alwaysCleanupRunnerPod: true
runnerTerminationGracePeriodSeconds: 30
sourceRef: {kind: GitRepository, name: modules}
tfstate: {forceUnlock: "no", lockTimeout: 0s}
healthChecks: [{name: web, type: http, url: "http://web", timeout: 20s}]
webhooks: [{stage: post-planning, enabled: true, payloadType: SpecAndPlan, url: "https://policy", testExpression: "${{ .passed }}"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			obj := object(t, header+"spec:\n"+tt.spec)
			for _, wrong := range s.admit(t, obj) {
				t.Error(wrong)
			}
			if diff := cmp.Diff(obj["spec"], any(object(t, tt.want))); diff != "" {
				t.Errorf("spec (-got +want):\n%s", diff)
			}
			if diff := cmp.Diff(obj["status"], any(object(t, "observedGeneration: -1"))); diff != "" {
				t.Errorf("status (-got +want):\n%s", diff)
			}
		})
	}
}

func TestTerraformRefusals(t *testing.T) {
	s := newServer(t)
	for name, tt := range map[string]struct{ spec, want string }{
		"neither a source nor an inline module": {"  path: x\n", "spec.sourceRef: Required value"},
		"values that are not an inline module":  {"  values: {region: x}\n", "spec.values.hcl: Required value"},
		"an inline module beside other values":  {"  values: {hcl: x, region: x}\n", "spec.values: Too many: 2: must have at most 1 item"},
		"a source of an unknown kind":           {"  sourceRef: {kind: HelmChart, name: x}\n", `supported values: "GitRepository", "Bucket", "OCIRepository"`},
		"a source without a name":               {"  sourceRef: {kind: Bucket}\n", "spec.sourceRef.name: Required value"},
		"an interval that Go does not parse":    {source + "  interval: 2 days\n", "must be a duration such as 90s or 1h30m"},
		"an interval beyond 292 years":          {source + "  interval: 9999999h\n", "must be a duration such as 90s or 1h30m"},
		"a retry interval without a unit":       {source + `  retryInterval: "15"` + "\n", "must be a duration such as 90s or 1h30m"},
		"a longest retry interval of words":     {source + "  maxRetryInterval: never\n", "must be a duration such as 90s or 1h30m"},
		"a lock timeout without a unit":         {source + `  tfstate: {lockTimeout: "5"}` + "\n", "must be a duration such as 90s or 1h30m"},
		"a health check's timeout of words":     {source + "  healthChecks: [{name: x, type: tcp, timeout: soon}]\n", "must be a duration such as 90s or 1h30m"},
		"an unknown retry strategy":             {source + "  retryStrategy: Linear\n", `supported values: "StaticInterval", "ExponentialBackoff"`},
		"an unknown form of a plan":             {source + "  storeReadablePlan: yaml\n", `supported values: "none", "json", "human"`},
		"an unknown way to unlock":              {source + "  tfstate: {forceUnlock: maybe}\n", `supported values: "yes", "no", "auto"`},
		"variables from an unknown kind":        {source + "  varsFrom: [{kind: Pod, name: x}]\n", `supported values: "Secret", "ConfigMap"`},
		"variables from nowhere":                {source + `  varsFrom: [{kind: Secret, name: ""}]` + "\n", "spec.varsFrom[0].name"},
		"variables from a name too long":        {source + "  varsFrom: [{kind: Secret, name: " + strings.Repeat("x", 254) + "}]\n", "spec.varsFrom[0].name: Too long"},
		"a backend's rest from an unknown kind": {source + "  backendConfigsFrom: [{kind: Pod, name: x}]\n", `supported values: "Secret", "ConfigMap"`},
		"a variable without a name":             {source + "  vars: [{value: x}]\n", "spec.vars[0].name: Required value"},
		"inputs without a name to use":          {source + "  readInputsFromSecrets: [{name: x}]\n", "spec.readInputsFromSecrets[0].as: Required value"},
		"outputs to a Secret without a name":    {source + "  writeOutputsToSecret: {outputs: [x]}\n", "spec.writeOutputsToSecret.name: Required value"},
		"a file in an unknown place":            {source + "  fileMappings: [{secretRef: {name: x}, location: root, path: x}]\n", `supported values: "home", "workspace"`},
		"a file outside of its place":           {source + "  fileMappings: [{secretRef: {name: x}, location: home, path: ../x}]\n", "spec.fileMappings[0].path"},
		"a health check of an unknown type":     {source + "  healthChecks: [{name: x, type: icmp}]\n", `supported values: "tcp", "http"`},
		"a health check without a name":         {source + `  healthChecks: [{name: "", type: tcp}]` + "\n", "spec.healthChecks[0].name"},
		"a webhook at an unknown stage":         {source + "  webhooks: [{stage: pre-planning, url: x, testExpression: x}]\n", `supported values: "post-planning"`},
		"a webhook without a test":              {source + "  webhooks: [{url: x}]\n", "spec.webhooks[0].testExpression: Required value"},
		"a cloud without workspaces":            {source + "  cloud: {organization: x}\n", "spec.cloud.workspaces: Required value"},
		"a dependency without a name":           {source + "  dependsOn: [{namespace: x}]\n", "spec.dependsOn[0].name: Required value"},
		"a misspelt field":                      {source + "  aprovePlan: auto\n", "unknown field spec.aprovePlan"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(s.admit(t, object(t, header+"spec:\n"+tt.spec)), "\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("admit() says %q, want it to say %q", got, tt.want)
			}
		})
	}
}

func TestTerraformAcceptances(t *testing.T) {
	s := newServer(t)
	for name, spec := range map[string]string{
		"an inline module":                      "  values: {hcl: 'output \"x\" { value = 1 }'}\n",
		"an inline module with a source too":    source + "  values: {hcl: x}\n",
		"values of any shape":                   source + "  values: [1, {a: b}, null]\n",
		"values that are a text":                source + "  values: text\n",
		"variables of any shape":                source + "  vars: [{name: a, value: {b: [1]}}, {name: c, value: 1.5}, {name: d, value: null}, {name: e}]\n",
		"two variables of one name":             source + "  vars: [{name: a, value: 1}, {name: a, value: 2}]\n",
		"durations as Go writes them":           source + "  interval: 1h30m0.5s\n  retryInterval: \"0\"\n  maxRetryInterval: .5h\n",
		"durations that only a program refuses": source + "  interval: -5m\n",
		"a webhook with an unknown payload":     source + "  webhooks: [{stage: post-planning, url: x, testExpression: x, payloadType: Everything}]\n",
		"no retries":                            source + "  remediation: {}\n",
		"two environment variables of one name": source + "  runnerPodTemplate: {spec: {env: [{name: A, value: a}, {name: A, value: b}]}}\n",
		"an enterprise of any shape":            source + "  enterprise: {branchPlanner: [1]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, wrong := range s.admit(t, object(t, header+"spec:\n"+spec)) {
				t.Error(wrong)
			}
		})
	}
}

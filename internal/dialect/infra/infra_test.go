package infra

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

var (
	fieldRef         = &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}
	fileKeyRef       = &corev1.FileKeySelector{Key: "key"}
	resourceFieldRef = &corev1.ResourceFieldSelector{Resource: "limits.cpu"}
)

func TestDecodeSpec(t *testing.T) {
	base := stack.Spec{
		Mode: stack.Manual, CheckDrift: true, Backoff: stack.Static,
		Interval: 10 * time.Minute, RetryEvery: 15 * time.Second, RetryMax: 24 * time.Hour,
	}
	retries := func(n int) *int { return &n }
	for name, tt := range map[string]struct {
		spec string
		want func(*stack.Spec)
	}{
		"what is not said has upstream's defaults": {``, func(*stack.Spec) {}},
		"auto approves by itself":                  {`approvePlan: auto`, func(s *stack.Spec) { s.Mode = stack.Auto }},
		"disable looks for drift only":             {`approvePlan: disable`, func(s *stack.Spec) { s.Mode = stack.DriftOnly }},
		"disable wins over planOnly":               {`{approvePlan: disable, planOnly: true}`, func(s *stack.Spec) { s.Mode = stack.DriftOnly }},
		"planOnly wins over auto":                  {`{approvePlan: auto, planOnly: true}`, func(s *stack.Spec) { s.Mode = stack.PlanOnly }},
		"a plan's name is an approval":             {`approvePlan: plan-main-b8e362c206`, func(s *stack.Spec) { s.Approved = "plan-main-b8e362c206" }},
		"a mode is no approval":                    {`{approvePlan: plan-main-b8e362c206, planOnly: true}`, func(s *stack.Spec) { s.Mode = stack.PlanOnly }},
		"disabled is no mode":                      {`approvePlan: disabled`, func(s *stack.Spec) { s.Approved = "disabled" }},
		"force and suspend":                        {`{force: true, suspend: true}`, func(s *stack.Spec) { s.Force, s.Suspended = true, true }},
		"destroy looks for no drift":               {`destroy: true`, func(s *stack.Spec) { s.Destroy, s.CheckDrift = true, false }},
		"drift detection can be disabled":          {`disableDriftDetection: true`, func(s *stack.Spec) { s.CheckDrift = false }},
		"a last destroy":                           {`destroyResourcesOnDeletion: true`, func(s *stack.Spec) { s.DestroyLast = true }},
		"times": {`{interval: 1h, retryInterval: 1m, maxRetryInterval: 30m, retryStrategy: ExponentialBackoff}`, func(s *stack.Spec) {
			s.Interval, s.RetryEvery, s.RetryMax, s.Backoff = time.Hour, time.Minute, 30*time.Minute, stack.Exponential
		}},
		"a nanosecond is a second":           {`{interval: 1ns, retryInterval: 1ms}`, func(s *stack.Spec) { s.Interval, s.RetryEvery = time.Second, time.Second }},
		"an interval of zero is never":       {`{interval: 0s, retryInterval: -1s}`, func(s *stack.Spec) { s.Interval, s.RetryEvery = dialect.Never, dialect.Never }},
		"a cap of zero is none given":        {`maxRetryInterval: 0s`, func(*stack.Spec) {}},
		"no retries":                         {`remediation: {retries: 0}`, func(s *stack.Spec) { s.MaxRetries = retries(0) }},
		"three retries":                      {`remediation: {retries: 3}`, func(s *stack.Spec) { s.MaxRetries = retries(3) }},
		"negative retries are without limit": {`remediation: {retries: -1}`, func(*stack.Spec) {}},
		"an empty remediation has no limit":  {`remediation: {}`, func(*stack.Spec) {}},
		"any lock":                           {`tfstate: {forceUnlock: auto, lockIdentifier: x}`, func(s *stack.Spec) { s.Unlock.Auto = true }},
		"one lock":                           {`tfstate: {forceUnlock: "yes", lockIdentifier: x}`, func(s *stack.Spec) { s.Unlock.ID = "x" }},
		"yes to no lock":                     {`tfstate: {forceUnlock: "yes"}`, func(*stack.Spec) {}},
		"no to a lock":                       {`tfstate: {forceUnlock: "no", lockIdentifier: x}`, func(*stack.Spec) {}},
		"outputs by what is to be published": {`writeOutputsToSecret: {name: out}`, func(s *stack.Spec) {
			s.Outputs = stack.Digest(&stack.Outputs{Secret: "out"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			tt.want(&want)
			got, _, _, err := Decode(sourced(t, tt.spec), Defaults{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("spec (-got +want):\n%s", diff)
			}
		})
	}
}

func TestDefaultsAreThePlatforms(t *testing.T) {
	got, _, _, err := Decode(sourced(t, ``), Defaults{Interval: time.Hour, RetryEvery: time.Minute, RetryMax: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got.Interval != time.Hour || got.RetryEvery != time.Minute || got.RetryMax != 2*time.Hour {
		t.Errorf("times are %v, %v, %v", got.Interval, got.RetryEvery, got.RetryMax)
	}
}

func TestDecodeInvalid(t *testing.T) {
	for name, tt := range map[string]struct{ spec, want string }{
		"nothing to carry out":                  {`interval: 1m`, "spec.sourceRef is missing, and there is no spec.values.hcl with an inline module instead"},
		"values that hold no module":            {`values: {region: x}`, "spec.values must hold exactly the key hcl, since there is no spec.sourceRef"},
		"values that hold more than a module":   {`values: {hcl: x, region: x}`, "spec.values must hold exactly the key hcl, since there is no spec.sourceRef"},
		"values that hold nothing by name":      {`values: text`, "spec.values must hold exactly the key hcl, since there is no spec.sourceRef"},
		"a module that is not a text":           {`values: {hcl: 1}`, "spec.values.hcl must be the text of a module"},
		"a module without text":                 {`values: {hcl: " "}`, "spec.values.hcl must be the text of a module"},
		"a directory in an inline module":       {`{values: {hcl: x}, path: ./modules}`, "spec.path needs a spec.sourceRef: an inline module has no directories"},
		"too many dependencies":                 {`{values: {hcl: x}, dependsOn: [` + strings.Repeat("{name: a}, ", dependenciesMost) + `{name: b}]}`, "spec.dependsOn names 257 stacks, and at most 256 are allowed: let stacks in between depend on some of them"},
		"a variable file of an inline module":   {`{values: {hcl: x}, tfVarsFiles: [a.tfvars]}`, "spec.tfVarsFiles needs a spec.sourceRef: an inline module has no files"},
		"a variable file without a name":        {`{sourceRef: {kind: Bucket, name: x}, tfVarsFiles: [a, ./]}`, "spec.tfVarsFiles[1] names no file"},
		"a variable without a name":             {`{values: {hcl: x}, vars: [{name: ""}]}`, "spec.vars[0].name is empty"},
		"variables from an unknown kind":        {`{values: {hcl: x}, varsFrom: [{kind: Pod, name: x}]}`, `spec.varsFrom[0].kind is "Pod", not Secret or ConfigMap`},
		"a workspace that is read as a path":    {`{values: {hcl: x}, workspace: a/b}`, `spec.workspace is "a/b", which is no name for a workspace`},
		"a workspace that is read as an option": {`{values: {hcl: x}, workspace: -or-create}`, `spec.workspace is "-or-create", which is no name for a workspace`},
		"an unknown form of a plan":             {`{values: {hcl: x}, storeReadablePlan: yaml}`, `spec.storeReadablePlan is "yaml", not none, json or human`},
		"outputs to a Secret without a name":    {`{values: {hcl: x}, writeOutputsToSecret: {name: ""}}`, "spec.writeOutputsToSecret.name is empty"},
		"two outputs with one key":              {`{values: {hcl: x}, writeOutputsToSecret: {name: s, outputs: ["a:key", "b:key"]}}`, `spec.writeOutputsToSecret.outputs[1] is "b:key", and "a:key" has the key "key" already: give one of them another key, as in OUTPUT:KEY`},
		"an output with a key that is none":     {`{values: {hcl: x}, writeOutputsToSecret: {name: s, outputs: ["a:bad key"]}}`, `spec.writeOutputsToSecret.outputs[0] is "a:bad key": a Secret cannot have the key "bad key"; a key has 1 to 253 letters of ASCII, digits, hyphens, underscores and dots`},
		"variables of what a run has not": {`{values: {hcl: x}, vars: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: b, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]}`,
			"spec.vars[].valueFrom.fileKeyRef is not supported: a run has no volumes that it could be in; spec.vars[].valueFrom.resourceFieldRef is not supported: a run has no container whose resources it could name"},
		"a variable of another field":          {`{values: {hcl: x}, vars: [{name: a, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}`, `spec.vars[0].valueFrom.fieldRef.fieldPath is "status.podIP": a run has ` + stack.Fields},
		"a file that is nowhere":               {`{values: {hcl: x}, fileMappings: [{secretRef: {name: s, key: k}, location: home, path: ./}]}`, `spec.fileMappings[0].path: "" is not the path of a file below it`},
		"a file of nothing":                    {`{values: {hcl: x}, fileMappings: [{secretRef: {name: s}, location: home, path: a}]}`, `spec.fileMappings[0].secretRef needs a name and a key`},
		"a file elsewhere":                     {`{values: {hcl: x}, fileMappings: [{secretRef: {name: s, key: k}, location: root, path: a}]}`, `spec.fileMappings[0].location is "root", not home or workspace`},
		"two files in one place":               {`{values: {hcl: x}, fileMappings: [{secretRef: {name: s, key: k}, location: home, path: a}, {secretRef: {name: t, key: k}, location: home, path: /a}]}`, `spec.fileMappings[1].path is "/a", where another file is placed`},
		"a file over a generated one":          {`{values: {hcl: x}, fileMappings: [{secretRef: {name: s, key: k}, location: workspace, path: generated.auto.tfvars.json}]}`, `spec.fileMappings[0].path: generated.auto.tfvars.json is the platform's own, or the engine's`},
		"a cloud without an organization":      {`{values: {hcl: x}, cloud: {organization: "", workspaces: {name: x}}}`, `spec.cloud.organization is empty`},
		"a cloud without workspaces":           {`{values: {hcl: x}, cloud: {organization: x, workspaces: {}}}`, `spec.cloud.workspaces needs a name or tags, and not both`},
		"a cloud with workspaces of two kinds": {`{values: {hcl: x}, cloud: {organization: x, workspaces: {name: x, tags: [y]}}}`, `spec.cloud.workspaces needs a name or tags, and not both`},
		"a cloud on no host":                   {`{values: {hcl: x}, cloud: {organization: x, workspaces: {name: x}, hostname: "h\"\n}"}}`, `spec.cloud.hostname is "h\"\n}", which is no host name`},
		"a cloud with two workspaces":          {`{values: {hcl: x}, workspace: y, cloud: {organization: x, workspaces: {name: x}}}`, `spec.workspace cannot be chosen beside spec.cloud.workspaces.name`},
		"a cloud and settings of a backend":    {`{values: {hcl: x}, cloud: {organization: x, workspaces: {name: x}}, backendConfigsFrom: [{kind: Secret, name: x}]}`, `spec.backendConfigsFrom cannot complete spec.cloud, which has no such settings`},
		"settings of an unknown kind":          {`{values: {hcl: x}, backendConfigsFrom: [{kind: Pod, name: x}]}`, `spec.backendConfigsFrom[0].kind is "Pod", not Secret or ConfigMap`},
		"a command line without a name":        {`{values: {hcl: x}, cliConfigSecretRef: {namespace: x}}`, `spec.cliConfigSecretRef.name is empty`},
		"an environment from nowhere":          {`{values: {hcl: x}, runnerPodTemplate: {spec: {envFrom: [{prefix: x}]}}}`, `spec.runnerPodTemplate.spec.envFrom[0] has neither a secretRef nor a configMapRef`},
		"an environment variable of another field": {`{values: {hcl: x}, runnerPodTemplate: {spec: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}}}`,
			`spec.runnerPodTemplate.spec.env[0]: A: valueFrom.fieldRef.fieldPath is "spec.nodeName": a run has ` + stack.Fields},
		"an environment variable of a resource": {`{values: {hcl: x}, runnerPodTemplate: {spec: {env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}}}`,
			`spec.runnerPodTemplate.spec.env[0]: A: valueFrom needs a secretKeyRef, a configMapKeyRef or a fieldRef`},
		"an environment variable of two values": {`{values: {hcl: x}, runnerPodTemplate: {spec: {env: [{name: A, value: x, valueFrom: {secretKeyRef: {name: s, key: k}}}]}}}`,
			`spec.runnerPodTemplate.spec.env[0]: A has a value and a valueFrom`},
	} {
		t.Run(name, func(t *testing.T) {
			obj := object(t, tt.spec)
			obj.Spec.Suspend, obj.Spec.DestroyResourcesOnDeletion = true, true
			obj.Status.LastAppliedRevision = "main@sha1:x"
			spec, _, memory, err := Decode(obj, Defaults{})
			if err == nil || err.Error() != tt.want {
				t.Errorf("error is %v, want %s", err, tt.want)
			}
			if got := fault.Of(err); got != fault.Invalid {
				t.Errorf("kind is %q, want Invalid", got)
			}
			if !spec.Suspended || !spec.DestroyLast || !memory.Created {
				t.Errorf("suspended %v, destroyed last %v, built %v: a spoilt spec hid what deletion needs", spec.Suspended, spec.DestroyLast, memory.Created)
			}
		})
	}
}

func TestDecodeStatus(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 8, 6, 10, 0, 0, 0, time.UTC))
	want := stack.Status{Plans: stack.Plans{Pending: &stack.Plan{Name: "plan-main-b8e362c206", Digest: "sha256:1", At: at.Time}}, Resources: stack.Resources{Created: true}, Answers: stack.Answers{HandledReplan: "now"}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		status v1alpha2.TerraformStatus
		want   stack.Status
	}{
		"a new object remembers nothing": {v1alpha2.TerraformStatus{ObservedGeneration: -1}, stack.Status{}},
		"what was written is read": {
			v1alpha2.TerraformStatus{LastAppliedRevision: "x", Terrier: &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: raw}}}, want,
		},
		"an object that upstream applied is adopted": {
			v1alpha2.TerraformStatus{LastAppliedRevision: "main@sha1:x", LastHandledReconcileAt: "then", Plan: v1alpha2.PlanStatus{Pending: "plan-main-1"}},
			stack.Status{Resources: stack.Resources{Created: true}, Answers: stack.Answers{HandledReplan: "then"}},
		},
		"an object that upstream left locked is adopted": {
			v1alpha2.TerraformStatus{LastPlanAt: &at, Lock: v1alpha2.LockStatus{Pending: "new", LastApplied: "old"}},
			stack.Status{StoredState: stack.StoredState{Lock: &stack.Lock{ID: "new", Seen: at.Time}, BrokenLock: "old"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := sourced(t, ``)
			obj.Status = tt.status
			_, _, got, err := Decode(obj, Defaults{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("memory (-got +want):\n%s", diff)
			}
		})
	}
}

// A memory that cannot be read is not an empty one: that would abandon what exists.
func TestDecodeUnreadableStatus(t *testing.T) {
	obj := sourced(t, ``)
	obj.Status.Terrier = &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: []byte(`{"built":"yes"}`)}}
	_, _, _, err := Decode(obj, Defaults{})
	if got := fault.Of(err); got != fault.Broken {
		t.Errorf("kind is %q (%v), want Broken", got, err)
	}
}

// object is an object called net with this spec.
func object(t *testing.T, spec string) *v1alpha2.Terraform {
	t.Helper()
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Name: "net", Namespace: "default"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &obj.Spec); err != nil {
		t.Fatal(err)
	}
	return obj
}

// sourced is an object with this spec and a source.
func sourced(t *testing.T, spec string) *v1alpha2.Terraform {
	t.Helper()
	obj := object(t, spec)
	obj.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "modules"}
	return obj
}

func manifest(t *testing.T, name string) *v1alpha2.Terraform {
	t.Helper()
	raw, err := os.ReadFile("../../../api/testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	obj := &v1alpha2.Terraform{}
	if err := yaml.UnmarshalStrict(raw, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// seeds names the manifests that Terrier was asked for in.
func seeds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../api/testdata/terraform-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".yaml"); !strings.HasPrefix(name, "terraform-everything") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatal("there are none")
	}
	return names
}

// defaulted sets what the CRD sets.
func defaulted(s *v1alpha2.TerraformSpec) {
	yes, grace := true, int64(30)
	s.UpgradeOnInit, s.AlwaysCleanupRunnerPod, s.RunnerTerminationGracePeriodSeconds = &yes, &yes, &grace
	s.ServiceAccountName, s.Workspace = "tf-runner", "default"
	s.RetryStrategy, s.StoreReadablePlan = v1alpha2.StaticInterval, v1alpha2.ReadableNone
}

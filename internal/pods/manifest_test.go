package pods

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

var update = flag.Bool("update", false, "write the manifests instead of comparing with them")

// canary must be in no manifest.
const canary = "canary-of-a-secret"

// quantities reads name: quantity.
func quantities(t *testing.T, all map[string]string) corev1.ResourceList {
	t.Helper()
	list := corev1.ResourceList{}
	for name, q := range all {
		list[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return list
}

// maker is an installation that makes manifests and nothing else.
func maker(t *testing.T) *Pods {
	t.Helper()
	return &Pods{config: Config{
		Installation: "0123456789abcdef", Audience: "terrier-run",
		Server: func() (string, []byte) {
			return "https://terrier.terrier-system.svc:8443", []byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
		},
		Settings: Settings{
			Image: "registry.example/terrier-runner:v1", PullPolicy: corev1.PullIfNotPresent, PullSecrets: []string{"registry"}, Account: "default",
			Resources: corev1.ResourceRequirements{Requests: quantities(t, map[string]string{"cpu": "800m", "memory": "150Mi"})},
		},
	}}
}

// launch is a run whose secrets are everywhere that a job has room for some.
func launch(kind stack.RunKind, account, template string) remote.Launch {
	return remote.Launch{
		Name: "net-" + string(kind) + "-0011223344556677", Key: "uid-1", ID: string(kind) + "-abc", Seal: "sealed",
		Job: &runner.Job{
			ID: string(kind) + "-abc", Stack: "uid-1", Name: "team-a/net", Kind: kind,
			Env: map[string]string{"TOKEN": canary}, Mask: []string{canary},
			Files: []workdir.File{{Path: "a.tfvars", Content: []byte(canary)}}, Home: []workdir.File{{Path: ".netrc", Content: []byte(canary)}},
			State: runner.ContentOf([]byte(canary)), Plan: runner.ContentOf([]byte(canary)), Note: json.RawMessage(`"` + canary + `"`),
			Limits: runner.Limits{Memory: 4 << 30},
			Pod:    &runner.Pod{Namespace: "team-a", Account: account, Template: json.RawMessage(template)},
		},
	}
}

// everything is a template that says something about each part of a pod.
const everything = `{
	"metadata": {"labels": {"team": "a", "terrier.dev/installation": "mine"}, "annotations": {"note": "b", "terrier.dev/run": "mine"}},
	"spec": {
		"containers": [{
			"name": "terrier-runner", "image": "registry.example/own:v2",
			"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
			"volumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
			"securityContext": {"runAsUser": 1000}
		}],
		"initContainers": [{"name": "fetch", "image": "registry.example/fetch:v1", "volumeMounts": [{"name": "plugins", "mountPath": "/plugins"}]}],
		"volumes": [{"name": "plugins", "emptyDir": {}}],
		"nodeSelector": {"disk": "ssd"},
		"tolerations": [{"key": "spot", "operator": "Exists"}],
		"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
		"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["git.example"]}],
		"priorityClassName": "terraform"
	}
}`

// The manifests of runs are these, and no secret of a run is in one.
func TestManifests(t *testing.T) {
	for name, l := range map[string]remote.Launch{
		"plan":       launch(stack.PlanRun, "", ""),
		"apply":      launch(stack.ApplyRun, "net", ""),
		"everything": launch(stack.ApplyRun, "", everything),
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := maker(t).manifest(l)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(got), canary) {
				t.Errorf("the manifest holds a secret:\n%s", got)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), string(want)); diff != "" {
				t.Errorf("the manifest has changed; go test ./internal/pods -update writes it (-got +want):\n%s", diff)
			}
		})
	}
}

// A template cannot change what a run lives by.
func TestATemplateCannotTakeARunApart(t *testing.T) {
	for name, tt := range map[string]struct{ template, want string }{
		"a volume of ours":            {`{"spec": {"containers": [{"name": "terrier-runner"}], "volumes": [{"name": "terrier-token", "hostPath": {"path": "/"}}]}}`, "volumes[0].name"},
		"a mount over the run":        {`{"spec": {"containers": [{"name": "terrier-runner", "volumeMounts": [{"name": "v", "mountPath": "/run"}]}]}}`, "volumeMounts[0].mountPath"},
		"a mount below it":            {`{"spec": {"containers": [{"name": "terrier-runner", "volumeMounts": [{"name": "v", "mountPath": "/run/terrier/token"}]}]}}`, "volumeMounts[0].mountPath"},
		"a mount over everything":     {`{"spec": {"containers": [{"name": "terrier-runner", "volumeMounts": [{"name": "v", "mountPath": "/"}]}]}}`, "volumeMounts[0].mountPath"},
		"a mount of a volume of ours": {`{"spec": {"containers": [{"name": "terrier-runner", "volumeMounts": [{"name": "terrier-providers", "mountPath": "/w"}]}]}}`, "containers[0].volumeMounts[0].name"},
		"one before the run":          {`{"spec": {"containers": [{"name": "terrier-runner"}], "initContainers": [{"name": "a", "volumeMounts": [{"name": "terrier-providers", "mountPath": "/w"}]}]}}`, "initContainers[0].volumeMounts[0].name"},
		"a container beside the run":  {`{"spec": {"containers": [{"name": "terrier-runner"}, {"name": "other"}]}}`, "containers beside"},
		"no JSON":                     {`{`, "spec.runnerPodTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := maker(t).manifest(launch(stack.PlanRun, "", tt.template))
			if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("manifest() error = %v, want it Invalid and to name %s", err, tt.want)
			}
		})
	}
}

// A run has directories of its own, which no template mounts over. A mount beside them is
// well.
func TestMountsAreNotWhereTheRunIs(t *testing.T) {
	mounted := func(at string) error {
		t.Helper()
		_, err := maker(t).manifest(launch(stack.PlanRun, "", fmt.Sprintf(`{"spec": {"containers": [{"name": "terrier-runner", "volumeMounts": [{"name": "v", "mountPath": %q}]}]}}`, at)))
		return err
	}
	for _, ours := range []string{"/run/terrier", "/work", "/mirror", "/engine", "/shown", "/backend", "/terrier"} {
		for _, at := range []string{ours, ours + "/", ours + "/below", "/", "/x/.." + ours} {
			if err := mounted(at); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "spec.runnerPodTemplate.spec.volumeMounts[0].mountPath: "+at+" is at, above or below /") {
				t.Errorf("a mount at %s: %v, want it Invalid and to name the field", at, err)
			}
		}
		if err := mounted(ours + "-of-mine"); err != nil {
			t.Errorf("a mount at %s-of-mine: %v", ours, err)
		}
	}
	for _, at := range []string{"/usr/local/bin/mirror", "/tmp", "/home/me/.aws", "/etc/ssl/certs"} {
		if err := mounted(at); err != nil {
			t.Errorf("a mount at %s: %v", at, err)
		}
	}
}

// No pod of a run writes the cache of providers.
func TestTheProviderCacheIsReadOnly(t *testing.T) {
	p := maker(t)
	p.config.Settings.ProviderCache = &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "providers"}}
	pod, err := p.manifest(launch(stack.CheckRun, "", everything))
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.VolumeMount{Name: "terrier-providers", MountPath: "/run/terrier/providers", ReadOnly: true}
	found := 0
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, m := range c.VolumeMounts {
			if m.Name == want.Name {
				found++
				if diff := cmp.Diff(m, want); diff != "" {
					t.Errorf("the mount of the cache (-got +want):\n%s", diff)
				}
			}
		}
	}
	if found != 1 {
		t.Errorf("the cache is mounted %d times, want once", found)
	}
}

// What the operator and the stack say about resources fits together.
func TestResourcesFit(t *testing.T) {
	for name, tt := range map[string]struct {
		template         string
		memory           int64
		requests, limits string
	}{
		"nothing is said":                      {"", 4 << 30, "200Mi", "4160Mi"},
		"a limit below the operator's request": {`{"limits": {"memory": "160Mi"}}`, 4 << 30, "160Mi", "160Mi"},
		"a request beyond the run's memory":    {`{"requests": {"memory": "8Gi"}}`, 4 << 30, "8Gi", "8Gi"},
		"a small run":                          {"", 100 << 20, "164Mi", "164Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			l := launch(stack.PlanRun, "", "")
			l.Job.Limits.Memory = tt.memory
			if tt.template != "" {
				l.Job.Pod.Template = json.RawMessage(`{"spec": {"containers": [{"name": "terrier-runner", "resources": ` + tt.template + `}]}}`)
			}
			m := maker(t)
			m.config.Settings.Resources.Requests["memory"] = resource.MustParse("200Mi")
			pod, err := m.manifest(l)
			if err != nil {
				t.Fatal(err)
			}
			r := pod.Spec.Containers[0].Resources
			if got := r.Requests.Memory().String(); got != tt.requests {
				t.Errorf("requested memory = %s, want %s", got, tt.requests)
			}
			if got := r.Limits.Memory(); got.Cmp(resource.MustParse(tt.limits)) != 0 {
				t.Errorf("limit of memory = %s, want %s", got, tt.limits)
			}
		})
	}
}

// A limit in which no engine starts is refused before there is a pod.
func TestAMemoryLimitThatIsTooSmall(t *testing.T) {
	l := launch(stack.PlanRun, "", `{"spec": {"containers": [{"name": "terrier-runner", "resources": {"limits": {"memory": "128Mi"}}}]}}`)
	l.Job.Engine.Name = "tofu"
	_, err := maker(t).manifest(l)
	if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "the memory limit of the pod is 128 MiB") || !strings.Contains(err.Error(), "to 160Mi or more") {
		t.Errorf("manifest() = %v, want that the limit is refused, and the least", err)
	}
}

// LQ-07: an apply that is interrupted has its grace, and time to send what it left.
func TestAPodHasTheGraceOfItsRun(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  stack.RunKind
		grace time.Duration
		want  time.Duration
	}{
		"an apply":                {stack.ApplyRun, 2 * time.Hour, 2*time.Hour + time.Minute},
		"an apply without limits": {stack.ApplyRun, 0, 31 * time.Minute},
		"a plan":                  {stack.PlanRun, 2 * time.Hour, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			l := launch(tt.kind, "", "")
			l.Job.Limits.Grace = tt.grace
			pod, err := maker(t).manifest(l)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; got != tt.want {
				t.Errorf("grace = %s, want %s", got, tt.want)
			}
			_, kept := pod.Annotations[annotationSafeToEvict]
			if kept != tt.kind.Writes() {
				t.Errorf("kept from autoscalers: %t, want %t", kept, tt.kind.Writes())
			}
		})
	}
}

// Only the account called default has its token withheld by the pod: of all others the
// owner decides. No template changes which account it is.
func TestAccountsOfPods(t *testing.T) {
	for name, tt := range map[string]struct {
		asked, platform, account string
		withheld                 bool
	}{
		"the default":                         {"", "default", "default", true},
		"the default by name":                 {"default", "runs", "default", true},
		"the platform's":                      {"", "runs", "runs", false},
		"the stack's own":                     {"net", "default", "net", false},
		"the stack's own, not the platform's": {"net", "runs", "net", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := maker(t)
			p.config.Settings.Account = tt.platform
			for _, template := range []string{"", `{"spec":{"containers":[{"name":"terrier-runner"}],"nodeSelector":{"a":"b"}}}`} {
				pod, err := p.manifest(launch(stack.PlanRun, tt.asked, template))
				if err != nil {
					t.Fatal(err)
				}
				if pod.Spec.ServiceAccountName != tt.account {
					t.Errorf("the pod runs under %q, want %q", pod.Spec.ServiceAccountName, tt.account)
				}
				if got := pod.Spec.AutomountServiceAccountToken; tt.withheld != (got != nil && !*got) {
					t.Errorf("automountServiceAccountToken is %v, want it withheld: %t", got, tt.withheld)
				}
			}
		})
	}
}

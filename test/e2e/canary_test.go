package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// canaries are the secrets of the sweep: each goes in by another door, and all
// contain what only they contain.
var canaries = map[string]string{
	"password":              "canary-of-an-input-4e1f", // a sensitive variable out of a Secret
	"AWS_SECRET_ACCESS_KEY": "canary-of-a-credential-9b2c",
}

const (
	canaryOfOutput = "canary-of-an-output-77aa"
	canaryOfThing  = "canary-of-a-thing-3c5d"
	canaryOfFile   = "canary-of-a-file-60e4"
	canaryOfEnv    = "canary-of-an-environment-60e4"
	canaryOfCLI    = "canary-of-a-command-line-60e4"
)

func allCanaries() []string {
	all := []string{canaryOfOutput, canaryOfThing, canaryOfFile, canaryOfEnv, canaryOfCLI}
	for _, c := range canaries {
		all = append(all, c)
	}
	return all
}

const canaryStack = `
variable "password" {
  type      = string
  sensitive = true
}

resource "world_thing" "it" {
  name   = "it"
  value  = "seen ${nonsensitive(sha256(var.password))}"
  secret = "canary-of-${var.thing}-3c5d"
}

variable "thing" { default = "a-thing" }

resource "terraform_data" "leaky" {
  triggers_replace = [nonsensitive(var.password)]
  provisioner "local-exec" {
    command = "echo password $PASSWORD; echo credential $AWS_SECRET_ACCESS_KEY; echo file $(cat ~/cred); echo environment $TOKEN"
    environment = { PASSWORD = nonsensitive(var.password) }
  }
}

output "hidden" {
  value     = "canary-of-an-output-${terraform_data.tail.output}"
  sensitive = true
}

resource "terraform_data" "tail" { input = "77aa" }
`

// T09, I6: a secret is where its owner put it, and nowhere else.
func TestCanarySweep(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.PutSecret(t, "inputs", canaries)
	c.PutSecret(t, "given", map[string]string{"file": canaryOfFile, "token": canaryOfEnv})
	c.PutSecret(t, "rc", map[string]string{"a.tfrc": "credentials \"h.example.com\" {\n  token = \"" + canaryOfCLI + "\"\n}\n"})
	watch := watchArguments(platform(t))
	c.Apply(t, inline("stack", `interval: 1s
storeReadablePlan: human
varsFrom: [{kind: Secret, name: inputs}]
fileMappings: [{secretRef: {name: given, key: file}, location: home, path: cred}]
runnerPodTemplate: {spec: {env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: given, key: token}}}]}}
cliConfigSecretRef: {name: rc}
writeOutputsToSecret: {name: out}`, w.HCL()+canaryStack))
	pending := c.AwaitPending(t, "stack").Status.Plan.Pending
	said := map[string]string{"terrier plan": c.Terrier(t, "plan", "stack"), "terrier plan -o json": c.Terrier(t, "plan", "stack", "-o", "json")}
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+pending+`"}}`)
	c.AwaitReason(t, "stack", "NoDrift") // one drift check later

	// The doors were open: what is looked for was there to leak.
	if got := c.Secret(t, "out")["hidden"]; got != canaryOfOutput {
		t.Fatalf("the output is %q, want %q", got, canaryOfOutput)
	}
	if all := w.Named("it"); len(all) != 1 || all[0].Secret == nil || *all[0].Secret != canaryOfThing {
		t.Fatalf("the world holds %+v, want a thing with a secret", all)
	}
	log := logOfApply(t, c)
	if !strings.Contains(log, "password ") || !strings.Contains(log, "credential ") || !strings.Contains(log, "file ") || !strings.Contains(log, "environment ") {
		t.Errorf("the log of the apply does not show what the module printed, so the sweep proves nothing:\n%s", log)
	}

	said["terrier logs"] = log
	for _, args := range [][]string{{"describe", "stack"}, {"get", "stack", "-o", "yaml"}, {"outputs", "stack"}, {"explain", "stack"}, {"runs", "stack", "-o", "json"}} {
		said["terrier "+strings.Join(args, " ")] = c.Terrier(t, args...)
	}
	said["the log of terrier up"] = platform(t).Log()
	said["the arguments of processes"] = watch()
	for where, text := range said {
		sweep(t, where, []byte(text))
	}
	sweepObjects(t, c)
	// While a run goes on its directory holds what the engine reads.
	c.Patch(t, "stack", `{"spec":{"suspend":true}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.Terrier.Phase != "Suspended" {
			return errNot("at rest")
		}
		return nil
	})
	noRuns(t, platform(t))
	sweepFiles(t, platform(t).Dir)
}

// logOfApply is the log of the run that applied.
func logOfApply(t *testing.T, c *testkit.Cluster) string {
	t.Helper()
	var runs struct{ Items []struct{ ID, Kind string } }
	if err := json.Unmarshal([]byte(c.Terrier(t, "runs", "stack", "-o", "json")), &runs); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs.Items {
		if r.Kind == "apply" {
			return c.Terrier(t, "logs", "stack", "--run", r.ID)
		}
	}
	t.Fatalf("no apply among the runs %+v", runs)
	return ""
}

// sweep looks for every canary, plain and as base64 at any alignment.
func sweep(t *testing.T, where string, text []byte) {
	t.Helper()
	for _, canary := range allCanaries() {
		forms := [][]byte{[]byte(canary)}
		for shift := range 3 {
			packed := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canary))
			forms = append(forms, []byte(packed[4:len(packed)-4])) // what the neighbours do not change
		}
		for _, form := range forms {
			if at := bytes.Index(text, form); at >= 0 {
				t.Errorf("%s holds %q: …%s…", where, form, text[max(0, at-80):min(len(text), at+80)])
			}
		}
	}
}

// sweepObjects reads every object that the API server has but the Secrets that
// are meant to hold secrets.
func sweepObjects(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	meant := []string{"inputs", "given", "rc", "out", "tfstate-default-stack"}
	d, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			all := &unstructured.UnstructuredList{}
			all.SetAPIVersion(list.GroupVersion)
			all.SetKind(r.Kind)
			if err := c.Client.List(t.Context(), all, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
				t.Fatalf("listing %s: %v", r.Kind, err)
			}
			for _, o := range all.Items {
				if o.GetKind() == "Secret" && o.GetNamespace() == c.Namespace && slices.Contains(meant, o.GetName()) {
					continue
				}
				text, err := json.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				sweep(t, fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), text)
				seen++
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d objects were looked at", seen)
	}
}

// sweepFiles reads everything that the platform keeps on disk.
func sweepFiles(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return ignoreGone(err)
		}
		if !bytes.HasPrefix(content, []byte("\x7fELF")) { // providers, which know no secret
			sweep(t, path, content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// watchArguments collects the arguments of the processes of the platform's runs,
// which every user of the machine can read. The function that it returns ends that,
// and returns them.
func watchArguments(p *testkit.Platform) func() string {
	var text strings.Builder
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for {
			select {
			case <-stop:
				return
			case <-look.C:
			}
			for _, q := range append(p.Supervisors(), p.Engines()...) {
				text.WriteString(strings.Join(q.Args, " ") + "\n")
			}
		}
	})
	return func() string {
		close(stop)
		watching.Wait()
		return text.String()
	}
}

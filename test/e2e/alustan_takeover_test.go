package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
)

var migrationStep = regexp.MustCompile("(?s)<!-- run: ([a-z]+) -->\n```sh\n(.*?)```\n")

// A migration from the Alustan controller, with the commands of its page: nothing is
// created a second time, a hung finalizer is removed, and a deletion destroys.
func TestFromAlustan(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t)
	e := &estate{Cluster: p.Cluster(t), p: p, w: p.World(t)}
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	e.alone(t)
	steps := map[string]string{}
	for _, m := range migrationStep.FindAllStringSubmatch(read(t, filepath.Join(testkit.Repository(t), "docs", "migrate-from-alustan.md")), -1) {
		steps[m[1]] = m[2]
	}
	const name = "example-terraformconfig"
	work := t.TempDir()
	run := func(step string) string {
		t.Helper()
		commands := steps[step]
		delete(steps, step)
		if commands == "" {
			t.Fatalf("the page has no step %s", step)
		}
		// In a directory of the test, with the programs of this repository.
		return e.Shell(t, fmt.Sprintf("set -e; export PATH=$PWD/bin:$PATH NAMESPACE=%s STACK=%s CONTROLLER_NAMESPACE=%[1]s; ln -sfn $PWD/docs %[3]s/docs; cd %[3]s\n%s",
			e.Namespace, name, work, commands))
	}
	says := func(step string, all ...string) {
		t.Helper()
		said := run(step)
		for _, want := range all {
			if !strings.Contains(said, want) {
				t.Errorf("%s says\n%swant %q", step, said, want)
			}
		}
	}

	// What Alustan leaves: a resource whose state is elsewhere, an object that counts as
	// applied and has a finalizer of a metacontroller that is gone, a pod, a ConfigMap.
	g := testkit.NewGit(t)
	g.Username = ""
	module := e.w.HCL() + "\nresource \"world_thing\" \"a\" {\n  name  = \"a\"\n  value = \"kept\"\n}\n"
	g.Commit(map[string]string{"terraform/main.tf": module})
	dir := t.TempDir()
	write(t, dir, "main.tf", module)
	testkit.Engine(t, dir, nil, "init", "-input=false", "-no-color")
	testkit.Engine(t, dir, nil, "apply", "-input=false", "-no-color", "-auto-approve")
	state := read(t, filepath.Join(dir, "terraform.tfstate"))
	write(t, work, "old.tfstate", state)
	e.w.Things() // the user's engine wrote it as another user than runs do

	e.checked(t)
	s := newScripted(t, e.Cluster, "inline.yaml", g.URL+"/terraform")
	s.patch(t, `{"metadata":{"finalizers":["example.com/other","metacontroller.io/compositecontroller-terraform"]},"spec":{"variables":null}}`)
	e.Kubectl(t, "patch", "terraforms.alustan.io", name, "--subresource=status", "--type=merge", "-p", `{"status":{"state":"Success","message":"Successfully applied"}}`)
	e.Apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: example-terraformconfig-dockerfile-configmap}
data: {Dockerfile: "FROM ubuntu"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: pvc-example-terraformconfig}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: terraform-controller-helm}
spec:
  replicas: 1
  selector: {matchLabels: {app: alustan}}
  template:
    metadata: {labels: {app: alustan}}
    spec: {containers: [{name: controller, image: "alustan/terraform-controller:0.13.0"}]}
`)

	_, again, _ := strings.Cut(steps["check"], "check\n")
	again = "{ " + strings.TrimSpace(again) + "; } 2>&1; echo ended with $?"
	says("check", "stacks: 1", "without variables", "without such a backend", "with a finalizer of metacontroller:", e.Namespace+"/"+name)
	copies, err := filepath.Glob(filepath.Join(work, "alustan-objects-*.yaml"))
	if err != nil || len(copies) != 1 || !strings.Contains(read(t, copies[0]), "name: "+name) {
		t.Errorf("the copies of the objects are %q, %v", copies, err)
	}
	if said := e.Shell(t, fmt.Sprintf("cd %s\n%s", work, again)); !strings.Contains(said, "ended with 1") {
		t.Errorf("a second copy says\n%swant that the first one is kept", said)
	}
	says("hold", "terrier.dev/approval=manual")
	says("stop", "--replicas=0")
	says("release", "/metadata/finalizers/1")
	if got := e.Kubectl(t, "get", "terraforms.alustan.io", name, "-o", "jsonpath={.metadata.finalizers}"); got != `["example.com/other"]` {
		t.Errorf("the finalizers are %s, want that of metacontroller gone, and no other", got)
	}
	s.patch(t, `{"metadata":{"finalizers":[]},"spec":{"variables":{"var1":"value1"}}}`)

	e.plane()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	s.await(t, "", "plan-main-", "")
	says("plan", "1 to add")
	if all := e.w.Named("a"); len(all) != 1 {
		t.Fatalf("before any approval the world holds %+v", all)
	}
	run("push")
	s.await(t, "Success", "", "")
	run("free")
	s.await(t, "Success", "", "")
	says("watch", "all stacks are Success")
	if all := e.w.Named("a"); len(all) != 1 || !strings.Contains(state, all[0].ID) {
		t.Errorf("the world holds %+v, want the one thing of before", all)
	}
	// Volumes of users may have such names, too, now that Alustan makes none.
	e.Apply(t, `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: later, annotations: {terrier.dev/suspended: "true"}}
spec: {scripts: {apply: {inline: "true"}, destroy: {inline: "true"}}, gitRepo: {url: "https://git.example/later"}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: pvc-later}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: runner, labels: {apprun: later}}
spec: {containers: [{name: runner, image: runner}]}
`)
	script := "CONTROLLER_NAMESPACE=" + e.Namespace + " sh docs/migrate/from-alustan.sh "
	e.Kubectl(t, "scale", "deployment", "terraform-controller-helm", "--replicas=1")
	if said := e.Shell(t, script+"clean --yes 2>&1; echo ended with $?"); !strings.Contains(said, "Alustan runs") || !strings.Contains(said, "ended with 1") {
		t.Errorf("clean says\n%swant it to refuse while Alustan runs", said)
	}
	e.Kubectl(t, "scale", "deployment", "terraform-controller-helm", "--replicas=0")
	e.Kubectl(t, "patch", "pod", "runner", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Succeeded"}}`)
	says("clean", "cluster: ", "delete pvc/pvc-example-terraformconfig", "delete configmap/example-terraformconfig-dockerfile-configmap")
	if e.Exists(t, "example-terraformconfig-dockerfile-configmap", &corev1.ConfigMap{}) {
		t.Error("the ConfigMap is still there")
	}
	if !e.Exists(t, "pvc-later", &corev1.PersistentVolumeClaim{}) || !e.Exists(t, "runner", &corev1.Pod{}) {
		t.Error("what Alustan did not make is gone")
	}
	e.Kubectl(t, "delete", "terraforms.alustan.io", "later")
	if len(steps) > 0 {
		t.Errorf("nothing runs the steps %v of the page", steps)
	}
	e.Kubectl(t, "delete", "terraforms.alustan.io", name)
	if all := e.w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// checked compares what the check of the migration says about stacks with texts of several
// lines, and about each of the ways in which the lives of the kind name their code.
func (e *estate) checked(t *testing.T) {
	t.Helper()
	c := e.Cluster
	kinds := c.Apply(t, `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: lines}
spec:
  variables: {a: b}
  backend: {provider: "aws\nsecond line"}
  scripts:
    apply: "one\ntwo three four\n"
    destroy: "set -e\nexit 0\nterraform destroy -auto-approve\n"
  gitRepo: {url: "git@github.com:team/network.git", sshKey: "-----BEGIN KEY-----\nAAAA BBBB CCCC\n-----END OPENSSH PRIVATE KEY-----\n"}
---
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: imaged}
spec:
  variables: {a: b}
  scripts: {deploy: deploy, destroy: destroy -c}
  containerRegistry: {imageName: team/network, semanticVersion: "~1.0.0"}
---
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: named}
spec:
  variables: {a: b}
  scripts: {apply: {inline: "a\nb\n"}}
  gitRepo: {url: "ssh://git@git.example/network", sshKeySecret: {name: key, key: id}}
---
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: bare}
spec:
  scripts: {apply: {inline: "a\nb\n"}, destroy: {inline: "c\nd\n"}}
`)
	said := c.Shell(t, "sh docs/migrate/from-alustan.sh check")
	got := map[string][]string{}
	heading := ""
	for line := range strings.Lines(said) {
		line = strings.TrimSuffix(line, "\n")
		entry, listed := strings.CutPrefix(line, "  ")
		if !listed {
			heading, _, _ = strings.Cut(line, ";")
			heading = strings.TrimSuffix(heading, ":")
			continue
		}
		if entry, mine := strings.CutPrefix(entry, c.Namespace+"/"); mine {
			got[heading] = append(got[heading], strings.TrimSpace(entry))
		}
	}
	want := map[string][]string{
		"with a backend that the controller makes": {`lines "aws\nsecond line"`},
		"without such a backend":                   {"bare", "imaged", "named"},
		"without variables":                        {"bare"},
		"without spec.gitRepo.url or spec.containerRegistry.semanticVersion": {"bare"},
		"with a private key in the object":                                   {"lines"},
		"with a URL of ssh":                                                  {`lines "git@github.com:team/network.git"`},
		"with an image":                                                      {"imaged"},
		"without a destroy script":                                           {"named"},
	}
	if diff := cmp.Diff(got, want); diff != "" || strings.Contains(said, "exit") || strings.Contains(said, "KEY") {
		t.Errorf("check says\n%s\n%s", said, diff)
	}
	for _, o := range kinds {
		c.Kubectl(t, "delete", "terraforms.alustan.io", o.GetName())
	}
}

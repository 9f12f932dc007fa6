package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// block is one of docs/operate.md, with what it is for.
var block = regexp.MustCompile("(?s)(?:<!-- ([a-z]+)(?:: ([a-z.]+))? -->\n)?```[a-z]*\n(.*?)```\n")

// operated is a release that a test makes with the commands of docs/operate.md, the page, and
// its blocks.
func operated(t *testing.T) (r *release, p *page, blocks [][]string) {
	t.Helper()
	for _, version := range []string{"1.2.3", "1.2.4"} {
		ship(t, root, version)
	}
	r = &release{Cluster: Open(t), dir: t.TempDir()}
	for _, name := range []string{"terrier-system", "team-a", "team-b", "team-c"} {
		removed(t, r.Cluster, name)
	}
	for _, name := range []string{"team-a", "team-b"} {
		if _, err := r.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.Namespace = "team-a" // where the stacks are
	t.Cleanup(func() {
		if t.Failed() {
			r.tell(t)
		}
	})
	p = newPage(t)
	if blocks = block.FindAllStringSubmatch(p.text, -1); len(blocks) < 17 {
		t.Fatalf("docs/operate.md has %d blocks", len(blocks))
	}
	return r, p, blocks
}

// The commands of docs/operate.md work as they stand, in their order, on a real node: an
// install, an upgrade with a stack, a backup, its restore, the loss of the data directory in
// the middle of an apply with the rescue of the state, and the end.
func TestOperate(t *testing.T) {
	r, p, blocks := operated(t)
	var w *testkit.World
	var g gate
	for _, b := range blocks {
		kind, file, commands := b[1], b[2], b[3]
		has := func(part string) bool { return strings.Contains(commands, part) }
		if kind == "elsewhere" || kind == "several" {
			continue // beside a module, and not beside the cluster; TestOperateSeveral
		}
		if kind == "file" {
			p.write(t, file, commands)
			continue
		}
		switch { // what happens before
		case has("> objects.json"):
			r.awaitOutput(t, "word-outputs", "word", "second")
		case has("delete lease terrier-controller"):
			w, g = r.applyGated(t)
			r.loseDataDirectory(t)
		case has("state.json > state.json"):
			r.await(t, p.fill("kubectl -n NAMESPACE exec POD -- sed -n p /run/terrier/work/runner/runs/KEY/RUN/run.json"), `"Done"`, p, func() { g.open(t) })
		case has("state push"):
			p.as(t, r.user(t, "rescuer", "terrier-operator"))
		case has("helm uninstall"):
			r.deleteStacks(t, "word", "gated")
		}
		printed := p.run(t, commands)
		switch { // what has come of it
		case has("helm install"):
			r.installed(t)
		case has("rollout status"):
			r.stacks.Apply(t, wordStack)
			r.awaitOutput(t, "word-outputs", "word", "first")
		case has("--version 1.2.4") && !has("replicaCount"):
			r.must(t, "rollout", "status", "deployment/terrier", "--timeout=3m")
			r.stacks.PutSecret(t, "inputs", map[string]string{"word": "second"})
			r.awaitOutput(t, "word-outputs", "word", "second")
		case has("helm rollback"):
			r.must(t, "rollout", "status", "deployment/terrier", "--timeout=3m")
			r.stacks.AwaitReady(t, "word")
		case has("kubectl scale --replicas 1"): // not this way: with Helm
			r.must(t, "rollout", "status", "deployment/terrier", "--timeout=3m")
			r.stacks.AwaitReady(t, "word")
		case has("delete lease terrier-controller"):
			r.must(t, "scale", "deployment/terrier", "--replicas=1")
			r.must(t, "rollout", "status", "deployment/terrier", "--timeout=3m")
			r.awaitMessage(t, "gated", "lock")
		case has("custom-columns"):
			p.learn(t, printed)
		case has("state push"):
			r.stacks.AwaitReady(t, "gated")
			made(t, w, "a", "b")
			if leaked := w.Leaked(r.stacks.State(t, "gated")); len(leaked) > 0 {
				t.Errorf("%+v is in no state", leaked)
			}
		}
	}
}

// The commands of docs/operate.md for several controllers work as they stand: the records of
// one controller move to a volume, three share them, and one goes on alone, while a run
// applies and a plan is pending.
func TestOperateSeveral(t *testing.T) {
	r, p, blocks := operated(t)
	var w *testkit.World
	var g gate
	var pods map[string]corev1.Pod
	pending, more := "", 0
	for _, b := range blocks {
		kind, file, commands := b[1], b[2], b[3]
		switch install := strings.Contains(commands, "helm install"); {
		case kind == "file":
			p.write(t, file, commands)
		case install:
			p.run(t, strings.ReplaceAll(commands, "1.2.3", "1.2.4"))
			r.must(t, "rollout", "status", "deployment/terrier", "--timeout=3m")
			r.installed(t)
			late := r.World(t)
			r.stacks.Apply(t, r.stackOf(t, "late", "", late.HCL()+thing("late", "1")))
			pending = r.stacks.AwaitPending(t, "late").Status.Plan.Pending
			w, g = r.applyGated(t)
			pods = r.pods(t, "terrier.dev/run-kind=apply")
		case kind == "several":
			more++
			printed := p.run(t, commands)
			if strings.Contains(commands, "member-of") && strings.Count(printed, "terrier-controller-member-") < 3 {
				t.Errorf("the command shows fewer than three Leases:\n%s", printed)
			}
			if now := r.pods(t, "terrier.dev/run-kind=apply"); !sameRunning(pods, now) {
				t.Errorf("after these commands the pods %v apply, want %v as before:\n%s", now, pods, commands)
			}
			if got := r.stacks.Stack(t, "late").Status.Plan.Pending; got != pending {
				t.Errorf("after these commands the plan %q is pending, want %q as before:\n%s", got, pending, commands)
			}
		}
	}
	if more < 3 {
		t.Errorf("%d blocks are of several controllers, want three", more)
	}
	g.open(t)
	r.stacks.AwaitReady(t, "gated")
	made(t, w, "a", "b")
	r.stacks.Patch(t, "late", `{"spec":{"approvePlan":"`+pending+`"}}`)
	r.stacks.AwaitReady(t, "late")
	r.deleteStacks(t, "gated", "late")
	made(t, w)
	helm(t, "uninstall", "terrier", "--wait")
}

// installed opens what the commands of the page have installed.
func (r *release) installed(t *testing.T) {
	t.Helper()
	var err error
	if r.Platform, err = testkit.Installed(Kubeconfig(), "", r.dir, worldVolume); err != nil {
		t.Fatal(err)
	}
	r.openStacks(t)
}

// applyGated lets a stack apply until its gate.
func (r *release) applyGated(t *testing.T) (*testkit.World, gate) {
	t.Helper()
	w := r.World(t)
	g := newGate(t, w)
	r.stacks.Apply(t, r.stackOf(t, "gated", approved, gated(w, g)))
	w.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "a" && c.Phase == "done" })
	return w, g
}

// loseDataDirectory takes the volume of the controller and its keys away, and makes an
// empty volume.
func (r *release) loseDataDirectory(t *testing.T) {
	t.Helper()
	r.must(t, "scale", "deployment/terrier", "--replicas=0")
	claims := r.Client.CoreV1().PersistentVolumeClaims(chartNamespace)
	old, err := claims.Get(t.Context(), "terrier", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, "wait", "pod", "--selector=app.kubernetes.io/name=terrier", "--for=delete", "--timeout=3m")
	if err := claims.Delete(t.Context(), "terrier", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must(t, "delete", "secret", "terrier-installation")
	empty := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, Annotations: map[string]string{}},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: old.Spec.AccessModes, Resources: old.Spec.Resources, StorageClassName: old.Spec.StorageClassName},
	}
	for name, value := range old.Annotations {
		if strings.Contains(name, "helm.sh") {
			empty.Annotations[name] = value
		}
	}
	testkit.Eventually(t, testkit.Patience, "the old volume is gone", func(ctx context.Context) error {
		if _, err := claims.Get(ctx, "terrier", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	if _, err := claims.Create(t.Context(), empty, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// await runs a command until it prints something, after having done first.
func (r *release) await(t *testing.T, command, want string, p *page, first func()) {
	t.Helper()
	first()
	testkit.Eventually(t, testkit.Patience, "the command prints "+want, func(context.Context) error {
		out, err := p.try(t, command)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("it prints %s", out)
		}
		return err
	})
}

func (r *release) deleteStacks(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		r.stacks.Delete(t, name)
		r.stacks.AwaitGone(t, name)
	}
	r.awaitNoPods(t)
}

// page is docs/operate.md, as a user follows it in a directory.
type page struct {
	text string
	dir  string
	what map[string]string // for the words in capitals
}

func newPage(t *testing.T) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{text: string(text), dir: t.TempDir(), what: map[string]string{}}
	p.write(t, "node.yaml", nodeValues)
	for name, program := range map[string]string{"kubectl": "bin/kubectl", "helm": "bin/helm"} {
		if err := os.Symlink(filepath.Join(testkit.Repository(t), program), filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *page) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// as makes a user run the command line.
func (p *page) as(t *testing.T, u user) {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\nKUBECONFIG=%s TERRIER_SERVER=%s exec %s \"$@\"\n", u.kubeconfig, u.server, commandLine(t))
	if err := os.WriteFile(filepath.Join(p.dir, "terrier"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// learn takes what a table says of the words in its head.
func (p *page) learn(t *testing.T, table string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 2 {
		t.Fatalf("the table has %d lines, want one pod:\n%s", len(lines), table)
	}
	head, row := strings.Fields(lines[0]), strings.Fields(lines[1])
	for i, word := range head {
		p.what[word] = row[i]
	}
	_, p.what["STACK"], _ = strings.Cut(p.what["STACK"], "/") // namespace/name
}

// fill puts what was learnt into a command.
func (p *page) fill(command string) string {
	for word, is := range p.what {
		command = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllLiteralString(command, is)
	}
	return command
}

// run runs the commands of a block, and returns what they print.
func (p *page) run(t *testing.T, commands string) string {
	t.Helper()
	out, err := p.try(t, p.fill(commands))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", commands, out)
	return out
}

// try is run for commands that may fail. The host of the registry is that of the test, and
// the chart is fitted to the node.
func (p *page) try(t *testing.T, commands string) (string, error) {
	t.Helper()
	here := strings.NewReplacer(
		"oci://registry.example.com/team/charts/terrier", "oci://"+team+"/charts/terrier --plain-http",
		"--values values.yaml", "--values node.yaml --values values.yaml")
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", here.Replace(commands))
	c.Dir = p.dir
	c.Env = append(os.Environ(), "HOME="+p.dir, "HELM_CACHE_HOME="+p.dir, "HELM_CONFIG_HOME="+p.dir, "HELM_DATA_HOME="+p.dir,
		"KUBECONFIG="+Kubeconfig(), "PATH="+p.dir+":"+os.Getenv("PATH"))
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s\n%w\n%s%s", commands, err, out, complaint.String())
	}
	return string(out), err
}

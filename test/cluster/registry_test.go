package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The registry of images does not answer. A stack whose image the node lacks says which image it
// waits for, and gives the only slot to a stack whose image is there. It has not failed, and
// goes on by itself once the registry answers.
func TestRegistryIsOut(t *testing.T) {
	r := prepare(t, "")
	r.set = []string{"--set", "flags.max-runs=1"}
	r.deploy(t, ship(t, root, "0.8.0"))
	ada := r.user(t, "ada", "terrier-operator")
	held, other := r.World(t), r.World(t)
	r.stacks.Apply(t, r.stackOf(t, "other", approved, other.HCL()+thing("x", "1")))
	r.stacks.AwaitReady(t, "other") // from now on the node has the image

	push(t, imageOf(t, root, "terrier-runner"), "team/terrier-runner:v0.8.1")
	answer := refuseRegistry(t)
	image := "registry.example.com/team/terrier-runner:v0.8.1"
	manifest := r.stackOf(t, "held", approved, held.HCL()+thing("a", "1"))
	r.stacks.Apply(t, strings.Replace(manifest, "runnerPodTemplate:\n    spec:\n", "runnerPodTemplate:\n    spec:\n      image: "+image+"\n", 1))
	waits := "waits for its image " + image + " ("
	r.awaitMessage(t, "held", waits)
	r.awaitMessage(t, "held", "Check that the registry answers, that it has the image, and that the pod may pull it")
	ada.says(t, image+" (", "explain", "held") // in lines of a terminal
	first := r.onlyPod(t)

	r.stacks.Apply(t, r.stackOf(t, "other", approved, other.HCL()+thing("x", "2")))
	r.awaitMessage(t, "held", "the pod may pull it. Other runs have its turn until it is tried again")
	r.awaitMessage(t, "held", "the pod "+first.Name+" "+waits)
	r.stacks.AwaitReady(t, "other")
	if n := r.stacks.Stack(t, "held").Status.ReconciliationFailures; n != 0 {
		t.Errorf("%d failures of the stack without its image are counted, want none", n)
	}
	if got := other.Named("x")[0].Value; got == nil || *got != "2" {
		t.Errorf("the thing has %v, want 2", got)
	}
	if got := held.Calls(); len(got) > 0 {
		t.Errorf("of the stack that waits there are the calls %+v", got)
	}

	answer()
	r.stacks.AwaitReady(t, "held")
	made(t, held, "a")
	for _, name := range []string{"held", "other"} {
		r.stacks.Delete(t, name)
		r.stacks.AwaitGone(t, name)
	}
	made(t, held)
	made(t, other)
	r.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
}

// onlyPod is the one pod of a run.
func (r *release) onlyPod(t *testing.T) corev1.Pod {
	t.Helper()
	all := r.pods(t, "terrier.dev/run-kind")
	for _, p := range all {
		if len(all) == 1 {
			return p
		}
	}
	t.Fatalf("there are the pods %v, want one", all)
	return corev1.Pod{}
}

// refuseRegistry has nothing answer at the address of the registry until the function that it
// returns is called, or the test ends.
func refuseRegistry(t *testing.T) (answer func()) {
	t.Helper()
	rule := func(ctx context.Context, do string) error {
		// To a port where nothing listens. Rules of nat are for new connections, which each pull makes.
		_, port, _ := strings.Cut(Registry, ":")
		out, err := exec.CommandContext(ctx, "iptables", "-w", "-t", "nat", do, "OUTPUT", "-p", "tcp", "-d", "127.0.0.1", "--dport", port, "-j", "REDIRECT", "--to-ports", "1").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	change := func(ctx context.Context, do string) {
		t.Helper()
		// The proxy of the node changes rules, too, and does not wait for others.
		testkit.Eventually(t, testkit.Patience, "a rule of iptables is changed", func(context.Context) error { return rule(ctx, do) })
	}
	change(t.Context(), "-I")
	refuses := true
	t.Cleanup(func() {
		if refuses {
			if err := rule(context.WithoutCancel(t.Context()), "-D"); err != nil {
				t.Error(errors.Join(errors.New("the registry of the cluster does not answer any more: start another cluster"), err))
			}
		}
	})
	return func() {
		t.Helper()
		change(t.Context(), "-D")
		refuses = false
	}
}

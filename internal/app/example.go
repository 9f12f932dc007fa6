package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/examples/quickstart"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/stack"
)

var errOutput = errors.New("--output: json is the only other form")

// exampleTime bounds the wait for the stacks of the quickstart.
const exampleTime = 5 * time.Minute

const exampleNamespace = "quickstart"

// estateDir is the directory that stands in for a cloud, below the data
// directory.
const estateDir = "estate"

// example applies the quickstart and the tenants, and waits for them.
type example struct {
	progress, out io.Writer
	now           func() time.Time
	program       string // how this one is called
}

func (q example) run(ctx context.Context, r Ready, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, exampleTime)
	defer cancel()
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return err
	}
	registry := strings.TrimPrefix(r.HTTP, "https://")
	q.say("pushing the quickstart's module to the registry inside")
	if err := q.push(ctx, r, registry); err != nil {
		return fmt.Errorf("pushing the quickstart: %w", err)
	}
	q.say("applying two stacks, and a table whose rows are tenants")
	if err := q.apply(ctx, c, strings.NewReplacer("REGISTRY", registry, "ESTATE", filepath.Join(r.DataDir, estateDir))); err != nil {
		return fmt.Errorf("applying the quickstart: %w", err)
	}
	if err := q.applyTenants(ctx, r, c); err != nil {
		return fmt.Errorf("applying the tenants: %w", err)
	}
	for _, name := range []string{"network", "app"} {
		held, err := q.await(ctx, c, name)
		if err != nil {
			return err
		}
		if held {
			q.say("  %s waits for you: %s explain %s -n %s", name, q.program, name, exampleNamespace)
		}
	}
	if err := q.awaitTenants(ctx, c); err != nil {
		return fmt.Errorf("waiting for the tenants: %w", err)
	}
	return q.tell(r)
}

func (q example) say(format string, args ...any) {
	fmt.Fprintf(q.progress, "terrier: "+format+"\n", args...)
}

// push writes the embedded module out and pushes it as a person would.
func (q example) push(ctx context.Context, r Ready, registry string) error {
	dir, err := os.MkdirTemp("", "terrier-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	module, err := fs.Sub(quickstart.Files, "app")
	if err == nil {
		err = os.CopyFS(dir, module)
	}
	if err != nil {
		return err
	}
	_, err = service.Push(ctx, service.Connection{Kubeconfig: r.Kubeconfig, Now: q.now}, dir, "oci://"+registry+"/quickstart/app:1.0.0", service.PushOptions{})
	return err
}

// apply applies the manifests, with what only this machine knows filled in.
func (q example) apply(ctx context.Context, c client.Client, fill *strings.Replacer) error {
	if err := createNamespace(ctx, c, exampleNamespace); err != nil {
		return err
	}
	return create(ctx, c, quickstart.Files, fill, "network.yaml", "app.yaml")
}

func createNamespace(ctx context.Context, c client.Client, name string) error {
	ns := &corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace")}
	ns.Name = name
	u, err := toUnstructured(ns)
	if err != nil {
		return err
	}
	return kube.Apply(ctx, c, u)
}

// create makes what the files say and is not there yet.
func create(ctx context.Context, c client.Client, from fs.FS, fill *strings.Replacer, files ...string) error {
	for _, file := range files {
		b, err := fs.ReadFile(from, file)
		if err != nil {
			return err
		}
		for doc := range bytes.SplitSeq(b, []byte("\n---\n")) {
			var u unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(fill.Replace(string(doc))), &u.Object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			// What is there already may have been changed on purpose.
			if err := client.IgnoreAlreadyExists(c.Create(ctx, &u, client.FieldOwner(service.FieldManager))); err != nil {
				return err
			}
		}
	}
	return nil
}

// await waits until a stack is ready, and says what it does meanwhile. At a later
// start it may be held until somebody decides, for as long as they like.
func (q example) await(ctx context.Context, c client.Client, name string) (held bool, err error) {
	said := ""
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var obj v1alpha2.Terraform
		if err := c.Get(ctx, types.NamespacedName{Namespace: exampleNamespace, Name: name}, &obj); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		cond := meta.FindStatusCondition(obj.Status.Conditions, infra.ConditionReady)
		if cond == nil {
			return false, nil
		}
		if cond.Message != said {
			said = cond.Message
			q.say("  %s: %s", name, said)
		}
		if t := obj.Status.Terrier; t != nil {
			held = slices.Contains([]stack.Reason{stack.AwaitingApproval, stack.DriftFound, stack.PlanOnlyHeld, stack.Suspended}, stack.Reason(t.Phase))
		}
		ready := meta.IsStatusConditionTrue(obj.Status.Conditions, infra.ConditionReady)
		return (ready || held) && obj.Status.ObservedGeneration == obj.Generation, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return false, fmt.Errorf("the stack %s is not ready after %s: %s", name, exampleTime, said)
	}
	return held, err
}

// tell says what to try now.
func (q example) tell(r Ready) error {
	estate := filepath.Join(r.DataDir, estateDir)
	_, err := fmt.Fprintf(q.out, `
There are two stacks: "network", written in place, and "app", from an artifact,
made from what the first outputs. Try, in another terminal:

  export KUBECONFIG=%[1]s
  %[4]s get -A                              # what there is
  %[4]s outputs app -n quickstart           # what it outputs

change it, see the plan, approve it:
  %[5]s -n quickstart patch tf app --type merge -p '{"spec":{"approvePlan":"","vars":[{"name":"estate","value":"%[2]s"},{"name":"replicas","value":3}]}}'
  %[4]s replan app -n quickstart --wait
  %[4]s plan app -n quickstart
  %[4]s approve app -n quickstart

break it by hand, and watch drift being noticed:
  echo broken > %[2]s/replica-0.txt
  %[4]s replan app -n quickstart            # or wait a minute
  %[4]s get -n quickstart --watch
%[6]s
Ctrl-C stops it, or "make down" with the DATA_DIR of "make up". Everything is kept in %[3]s.
`, r.Kubeconfig, estate, r.DataDir, q.program, kubectl(q.program), q.tellTenants(r))
	return err
}

// kubectl is how kubectl is called: the one beside this program, if it was
// built, else the one that people have.
func kubectl(program string) string {
	if beside("kubectl") != "" && strings.ContainsRune(program, filepath.Separator) {
		return filepath.Join(filepath.Dir(program), "kubectl")
	}
	return "kubectl"
}

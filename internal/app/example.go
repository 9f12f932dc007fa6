package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/examples/quickstart"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

var errOutput = errors.New("--output: the only value is json")

// exampleTime bounds the applying of the quickstart, and then the wait for its
// stacks.
const exampleTime = 5 * time.Minute

const exampleNamespace = "quickstart"

// estateDir is the directory that stands for a cloud, below the data
// directory.
const estateDir = "estate"

// example applies the quickstart and the tenants, and waits for them.
type example struct {
	progress, out io.Writer
	now           func() time.Time
	program       string // the name of this program in messages
}

// run returns an error only if ctx has ended: Terrier continues without the
// examples.
func (q example) run(ctx context.Context, r Ready, config *rest.Config) error {
	c, err := client.New(config, client.Options{Scheme: newScheme(kinds.All())})
	if err == nil {
		err = q.applyAll(ctx, r, c)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		q.say("  the examples could not be applied completely: %v", err)
		if hint := command.Hint(err); hint != "" {
			q.say("  %s", hint)
		}
		q.say("  Terrier runs without them. Correct the cause, then start it again with --quickstart to apply the missing ones.")
		return nil
	}
	q.awaitStacks(ctx, c)
	q.awaitTenants(ctx, c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := q.tell(r); err != nil {
		q.say("  the next steps could not be printed: %v", err)
	}
	return nil
}

// applyAll applies the stacks and the tenants.
func (q example) applyAll(ctx context.Context, r Ready, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, exampleTime)
	defer cancel()
	registry := strings.TrimPrefix(r.HTTP, "https://")
	q.say("pushing the module of the quickstart to the built-in registry")
	if err := q.push(ctx, r, registry); err != nil {
		return fmt.Errorf("pushing the quickstart: %w", err)
	}
	q.say("applying two stacks, and a table with three tenants")
	if err := q.apply(ctx, c, strings.NewReplacer("REGISTRY", registry, "ESTATE", filepath.Join(r.DataDir, estateDir))); err != nil {
		return fmt.Errorf("applying the quickstart: %w", err)
	}
	if err := q.applyTenants(ctx, r, c); err != nil {
		return fmt.Errorf("applying the tenants: %w", err)
	}
	return nil
}

func (q example) say(format string, args ...any) {
	fmt.Fprintf(q.progress, "terrier: "+format+"\n", args...)
}

// apply applies the manifests, with the values of this machine filled in.
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

// create creates the objects of the files that do not exist yet.
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
			// An existing object may have been changed on purpose.
			if err := client.IgnoreAlreadyExists(c.Create(ctx, &u, client.FieldOwner(access.FieldManager))); err != nil {
				return err
			}
		}
	}
	return nil
}

// exampleStack is the last known status of a stack of the quickstart.
type exampleStack struct {
	name string
	said string // by its Ready condition
	held bool   // until the user decides
	done bool   // ready or held, as its manifest is now
}

// awaitStacks waits until the stacks are ready, and prints their progress.
// At a later start a stack may wait for a decision of the user.
// If a stack is not ready, it prints the reason and the next step.
func (q example) awaitStacks(ctx context.Context, c client.Reader) {
	within, cancel := context.WithTimeout(ctx, exampleTime)
	defer cancel()
	stacks := []*exampleStack{{name: "network"}, {name: "app"}}
	err := wait.PollUntilContextCancel(within, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, s := range stacks {
			if s.done {
				continue
			}
			// Each stack depends on the previous one: its messages until then only confuse.
			if err := q.poll(ctx, c, s); err != nil || !s.done {
				return false, err
			}
		}
		return true, nil
	})
	if err == nil || ctx.Err() != nil {
		return
	}
	if within.Err() == nil {
		q.say("  the stacks could not be read: %v", err)
	}
	for _, s := range stacks {
		if !s.done {
			q.say("  %s is not ready: %s", s.name, cmp.Or(s.said, "it has not been reconciled yet"))
			q.say("    next step: %s explain %s -n %s", q.program, s.name, exampleNamespace)
		}
	}
}

// poll reads a stack once, and prints changes.
func (q example) poll(ctx context.Context, c client.Reader, s *exampleStack) error {
	var obj v1alpha2.Terraform
	if err := c.Get(ctx, types.NamespacedName{Namespace: exampleNamespace, Name: s.name}, &obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	cond := meta.FindStatusCondition(obj.Status.Conditions, dialect.ConditionReady)
	if cond == nil {
		return nil
	}
	if cond.Message != s.said {
		s.said = cond.Message
		q.say("  %s: %s", s.name, s.said)
	}
	if t := obj.Status.Terrier; t != nil {
		s.held = slices.Contains([]stack.Reason{stack.AwaitingApproval, stack.PlanRejected, stack.DriftFound, stack.PlanOnlyHeld, stack.Suspended}, stack.Reason(t.Phase))
	}
	s.done = (cond.Status == metav1.ConditionTrue || s.held) && obj.Status.ObservedGeneration == obj.Generation
	if s.done && s.held {
		q.say("  %s needs your decision: %s explain %s -n %s", s.name, q.program, s.name, exampleNamespace)
	}
	return nil
}

// tell prints what to try next.
func (q example) tell(r Ready) error {
	estate := filepath.Join(r.DataDir, estateDir)
	_, err := fmt.Fprintf(q.out, `
There are two stacks: "network", with an inline module, and "app", from an artifact.
"app" uses the outputs of "network". Try this in another terminal:

  export KUBECONFIG=%[1]s
  %[4]s get -A                              # list the stacks
  %[4]s outputs app -n quickstart           # show its outputs

Change a stack, show its plan, approve the plan:
  %[5]s -n quickstart patch tf app --type merge -p '{"spec":{"approvePlan":"","vars":[{"name":"estate","value":"%[2]s"},{"name":"replicas","value":3}]}}'
  %[4]s replan app -n quickstart --wait
  %[4]s plan app -n quickstart
  %[4]s approve app -n quickstart

Change a resource outside of Terrier, and watch the drift check detect it:
  echo broken > %[2]s/replica-0.txt
  %[4]s replan app -n quickstart            # or wait a minute
  %[4]s get -n quickstart --watch
%[6]s
To stop Terrier, press Ctrl-C, or run "make down" with the DATA_DIR of "make up". All data stays in %[3]s.
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

package app

import (
	"bytes"
	"cmp"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/examples/quickstart"
	"github.com/terrier-iac/terrier/internal/access"
	termclient "github.com/terrier-iac/terrier/internal/client"
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

// Names of examples, as --example has them.
const (
	exampleQuickstart = "quickstart"
	exampleAlustan    = "alustan"
)

// exampleNames are all of them.
var exampleNames = [...]string{exampleQuickstart, exampleAlustan}

// examples are the names of those that the user asks for, in the order of exampleNames.
func (c Config) examples() []string {
	var names []string
	for _, name := range exampleNames {
		if slices.Contains(c.Examples, name) || name == exampleQuickstart && c.Quickstart {
			names = append(names, name)
		}
	}
	return names
}

// checkExamples reports a name that no example has.
func (c Config) checkExamples() error {
	for _, name := range c.Examples {
		if !slices.Contains(exampleNames[:], name) {
			return usage("--example: there is no example %q; there are %s", name, strings.Join(exampleNames[:], " and "))
		}
	}
	return nil
}

// example applies examples, and waits for them.
type example struct {
	names         []string
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
		q.say("  Terrier runs without them. Correct the cause, then start it again with --example %s to apply the missing ones.", strings.Join(q.names, " --example "))
		return nil
	}
	for _, name := range q.names {
		switch name {
		case exampleQuickstart:
			q.awaitStacks(ctx, c, quickstartStacks())
			q.awaitTenants(ctx, c)
		case exampleAlustan:
			q.awaitStacks(ctx, c, scriptedStacks())
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := q.tell(r); err != nil {
		q.say("  the next steps could not be printed: %v", err)
	}
	return nil
}

// applyAll applies the examples.
func (q example) applyAll(ctx context.Context, r Ready, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, exampleTime)
	defer cancel()
	for _, name := range q.names {
		apply := q.applyQuickstart
		if name == exampleAlustan {
			apply = q.applyScripted
		}
		if err := apply(ctx, r, c); err != nil {
			return err
		}
	}
	return nil
}

// applyQuickstart applies the stacks and the tenants.
func (q example) applyQuickstart(ctx context.Context, r Ready, c client.Client) error {
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

// push writes the embedded module out and pushes it as a user would.
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
	_, err = termclient.Push(ctx, termclient.Connection{Kubeconfig: r.Kubeconfig, Now: q.now}, dir, "oci://"+registry+"/quickstart/app:1.0.0", termclient.PushOptions{})
	return err
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

// exampleStack is the last known status of a stack of an example.
type exampleStack struct {
	kind            schema.GroupVersionKind
	namespace, name string
	shown           string // the name in messages
	command         string // the name in commands
	said            string // by its Ready condition
	held            bool   // until the user decides
	done            bool   // ready or held, as its manifest is now
}

// quickstartStacks are the stacks of the quickstart.
func quickstartStacks() []*exampleStack {
	var all []*exampleStack
	for _, name := range []string{"network", "app"} {
		all = append(all, &exampleStack{kind: kinds.All().All()[0].Kind(), namespace: exampleNamespace, name: name, shown: name, command: name})
	}
	return all
}

// awaitStacks waits until the stacks are ready, and prints their progress.
// At a later start a stack may wait for a decision of the user.
// If a stack is not ready, it prints the reason and the next step.
func (q example) awaitStacks(ctx context.Context, c client.Reader, stacks []*exampleStack) {
	within, cancel := context.WithTimeout(ctx, exampleTime)
	defer cancel()
	err := wait.PollUntilContextCancel(within, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, s := range stacks {
			if s.done {
				continue
			}
			// Each stack of the quickstart depends on the previous one: its messages until
			// then only confuse.
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
			q.say("  %s is not ready: %s", s.shown, cmp.Or(s.said, "it has not been reconciled yet"))
			q.say("    next step: %s explain %s -n %s", q.program, s.command, s.namespace)
		}
	}
}

// poll reads a stack once, and prints changes.
func (q example) poll(ctx context.Context, c client.Reader, s *exampleStack) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(s.kind)
	if err := c.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: s.name}, obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	var is struct { // what the status of all kinds has
		Status struct {
			ObservedGeneration int64              `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
			Terrier            struct {
				Phase stack.Reason `json:"phase"`
			} `json:"terrier"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &is); err != nil {
		return err
	}
	cond := meta.FindStatusCondition(is.Status.Conditions, dialect.ConditionReady)
	if cond == nil {
		return nil
	}
	if cond.Message != s.said {
		s.said = cond.Message
		q.say("  %s: %s", s.shown, s.said)
	}
	s.held = slices.Contains([]stack.Reason{stack.AwaitingApproval, stack.PlanRejected, stack.DriftFound, stack.PlanOnlyHeld, stack.Suspended}, is.Status.Terrier.Phase)
	s.done = (cond.Status == metav1.ConditionTrue || s.held) && is.Status.ObservedGeneration == obj.GetGeneration()
	if s.done && s.held {
		q.say("  %s needs your decision: %s explain %s -n %s", s.shown, q.program, s.command, s.namespace)
	}
	return nil
}

// tell prints what to try next.
func (q example) tell(r Ready) error {
	var text strings.Builder
	for _, name := range q.names {
		if name == exampleAlustan {
			text.WriteString(q.tellScripted(r))
			continue
		}
		text.WriteString(q.tellQuickstart(r))
	}
	_, err := fmt.Fprintf(q.out, "%s\nTo stop Terrier, press Ctrl-C, or run \"make down\" with the DATA_DIR of \"make up\". All data stays in %s.\n", &text, r.DataDir)
	return err
}

// tellQuickstart is what to try with the quickstart.
func (q example) tellQuickstart(r Ready) string {
	estate := filepath.Join(r.DataDir, estateDir)
	return fmt.Sprintf(`
There are two stacks: "network", with an inline module, and "app", from an artifact.
"app" uses the outputs of "network". Try this in another terminal:

  export KUBECONFIG=%[1]s
  %[3]s get -A                              # list the stacks
  %[3]s outputs app -n quickstart           # show its outputs

Change a stack, show its plan, approve the plan:
  %[4]s -n quickstart patch tf app --type merge -p '{"spec":{"approvePlan":"","vars":[{"name":"estate","value":"%[2]s"},{"name":"replicas","value":3}]}}'
  %[3]s replan app -n quickstart --wait
  %[3]s plan app -n quickstart
  %[3]s approve app -n quickstart

Change a resource outside of Terrier, and watch the drift check detect it:
  echo broken > %[2]s/replica-0.txt
  %[3]s replan app -n quickstart            # or wait a minute
  %[3]s get -n quickstart --watch
%[5]s`, r.Kubeconfig, estate, q.program, kubectl(q.program), q.tellTenants(r))
}

// kubectl is how kubectl is called: the one beside this program, if it was
// built, else the one that people have.
func kubectl(program string) string {
	if beside("kubectl") != "" && strings.ContainsRune(program, filepath.Separator) {
		return filepath.Join(filepath.Dir(program), "kubectl")
	}
	return "kubectl"
}

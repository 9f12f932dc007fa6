package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
)

// operateCommands act on stacks.
type operateCommands struct{ *program }

func (p operateCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.replan(), p.rollback(), p.suspend(), p.resume(), p.cancel(), p.unlock(), p.breakGlass(), p.steps()}
}

func (p operateCommands) replan() *cobra.Command {
	var (
		wait    bool
		timeout time.Duration
	)
	c := &cobra.Command{
		Use:     "replan STACK",
		Aliases: []string{"reconcile"},
		Short:   "Request a new plan now",
		Long: `Requests a new plan now, regardless of the check interval and of the retry limit. In
a stack that applies every plan, the new plan is applied, too.

With --wait the command says on standard error what the stack waits for. It ends when
the stack is settled, and prints its status. If the plan failed or was cancelled, or a
user has to act before the stack has a plan, it ends with the message of the stack and
exit code 2; if the timeout is over, with exit code 6.`,
		Example: `  terrier replan network
  terrier replan network --wait --timeout 10m`,
		GroupID:           groupOperate,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			request, err := s.Replan(ctx, key)
			if err != nil {
				return err
			}
			if !wait {
				p.say("Requested a new plan of %s.\n", key)
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			st, err := command.Answered(ctx, s, key, request, p.waiting)
			if err = cmp.Or(err, command.NotPlanned(st)); err != nil {
				return err
			}
			p.settled(st)
			return nil
		}),
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until the stack is settled")
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	return c
}

func (p operateCommands) steps() *cobra.Command {
	var (
		f        format
		selector string
	)
	c := &cobra.Command{
		Use:   "steps [STACK]",
		Short: "Show the steps after the apply of stacks, and run them again",
		Long: `Lists the stacks that have steps after their applies, and how far these are. With a
stack the command shows each step: its state, when it began or ended, and the last line
of what it said. "terrier logs STACK" has all of it.

Stacks name their steps in the annotation terrier.dev/after-apply: see docs/after-apply.md.`,
		Example: `  terrier steps -A
  terrier steps network
  terrier steps network -o json | jq -r '.steps[] | select(.state == "Failed") | .name'`,
		GroupID:           groupView,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, s, err := p.filter(cmd.Context(), args, selector)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				d, err := s.Describe(cmd.Context(), filter.Key())
				if err == nil {
					err = p.stepsOf(d, f)
				}
				return err
			}
			list, err := s.List(cmd.Context(), filter)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(s query.Stack) bool { return s.AfterApply == nil })
			if !p.structured(f, map[string]any{"items": list}) {
				p.stepsIn(list, filter)
			}
			return nil
		},
	}
	p.allFlag(c)
	c.Flags().StringVarP(&selector, "selector", "l", "", "only stacks with these `labels`")
	formatFlag(c, &f, forJSON, forYAML)
	c.AddCommand(p.rerunSteps())
	return c
}

// stepsIn lists stacks with how far their steps are.
func (p operateCommands) stepsIn(list []query.Stack, filter query.Filter) {
	if len(list) == 0 {
		p.note("No stack has steps after its applies.\n")
		return
	}
	t := namespaced(filter.Namespace == "", "NAMESPACE", "STACK", "STATE", "DONE", "STEP", "AT")
	for _, s := range list {
		a := s.AfterApply
		t.add(plain(s.Namespace), plain(s.Key().Argument()), plain(string(a.State)), plain(fmt.Sprintf("%d/%d", a.Done, a.Of)), plain(a.Step), plain(p.at(a.At)))
	}
	p.table(t)
}

// stepsOf shows the steps of one stack.
func (p operateCommands) stepsOf(d query.Detail, f format) error {
	if d.Steps == nil {
		return fault.New(fault.Missing, command.ReasonNoSteps, fmt.Errorf("the stack %s has no steps after its applies: the annotation terrier.dev/after-apply names them", d.Key()))
	}
	if p.structured(f, d.Steps) {
		return nil
	}
	t := &table{head: []string{"STEP", "DOES", "STATE", "AT", "MESSAGE"}}
	for _, s := range d.Steps.Steps {
		lines := strings.Split(strings.TrimSpace(s.Message), "\n")
		t.add(plain(s.Name), plain(s.Does), plain(string(s.State)), plain(p.at(s.At)), plain(lines[len(lines)-1]))
	}
	p.table(t)
	switch d.Steps.State {
	case stack.StepFailed:
		p.note("%s. To run the steps again: terrier steps rerun %s\n", strings.TrimRight(d.Steps.Message, ". "), d.Key().Argument())
	case steps.Held:
		p.note("These steps were not approved. Review the annotation and the files that it names. To approve and run them: terrier steps rerun %s --steps %s\n", d.Key().Argument(), d.Steps.Digest)
	}
	return nil
}

func (p operateCommands) rerunSteps() *cobra.Command {
	var seen string
	c := &cobra.Command{
		Use:   "rerun STACK",
		Short: "Run the steps after the apply of a stack again",
		Long: `Has all steps after the apply run again, without a plan and without an apply. Each step
has to bear being run twice.

Where plans need an approval, this command approves the steps as they are now, with the
files that they can use. With --steps it approves exactly those that you have reviewed:
if they changed since, nothing runs, and the command ends with exit code 5. "terrier steps
STACK -o json" has their digest. The audit log records the request.

Where a policy says who approves, the command is the approval of one user, and the steps
run once those approved them whom the policy asks for.`,
		Example: `  terrier steps rerun network
  terrier steps rerun network --steps 0123456789ab`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			if _, err := s.RerunSteps(ctx, key, seen); err != nil {
				return err
			}
			p.say("Requested the steps after the apply of %s.\n", key)
			return nil
		}),
	}
	c.Flags().StringVar(&seen, "steps", "", "run only the steps with this `digest`")
	return c
}

func (p operateCommands) rollback() *cobra.Command {
	var order command.StackRollback
	c := &cobra.Command{
		Use:   "rollback STACK",
		Short: "Return to the last good apply",
		Long: `Returns to the last good apply: Terrier plans and applies the source and the inputs of
that apply in place of what the object asks for. The apply is the last one of other inputs
that passed its health checks, or the last one of other inputs if none is known to have
passed any. The plan is judged by policies as any plan is, and if it destroys something,
it needs an approval.

The rollback lasts until the source, the inputs or the spec change. To try what was
rolled back once more, end the rollback with --end. The audit log has who asked, and the
reason.

To roll back the state and no resources, see terrier state rollback.`,
		Example: `  terrier rollback network --reason 'the service answers 500 since the release'
  terrier rollback network --end`,
		GroupID:           groupOperate,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			to, err := s.RollBack(ctx, key, order)
			if err != nil {
				return err
			}
			if order.End {
				p.say("Ended the rollback of %s: Terrier plans %s again.\n", key, to.To)
				return nil
			}
			p.say("Requested the rollback of %s from %s to %s, which was applied by the plan %s.\n", key, to.From, to.To, to.Plan)
			return nil
		}),
	}
	c.Flags().BoolVar(&order.End, "end", false, "end the rollback, and plan what the object asks for")
	c.Flags().StringVar(&order.Reason, "reason", "", "the reason, a `text` that the audit log keeps")
	return c
}

// suspensionNote says what a suspension does not prevent.
const suspensionNote = "If a suspended stack is deleted and a deletion destroys its resources, they are still destroyed. To keep them, annotate the stack with terrier.dev/deletion=retain.\n"

func (p operateCommands) suspend() *cobra.Command {
	return p.orRegistry("Suspended", command.TenantAPI.SuspendRegistry, p.eachStack(&cobra.Command{
		Use:   "suspend {STACK | --all | -A | tenantregistry/NAME}",
		Short: "Suspend stacks, or a registry",
		Long: `Suspends stacks: Terrier does not plan, apply or check them until they are resumed.
An active run ends first. A suspended stack can be deleted: a deletion still destroys
its resources, or runs its destroy script. To keep them, annotate the stack with
terrier.dev/deletion=retain first.

A suspended registry reads no rows, and creates, updates and deletes no tenants.
Terrier still reconciles the objects of its existing tenants.`,
		Example: `  terrier suspend network
  terrier suspend --all -n apps
  terrier suspend -A -l team=net
  terrier suspend tenantregistry/customers`,
	}, "Suspended", suspensionNote, command.StackAPI.Suspend))
}

func (p operateCommands) resume() *cobra.Command {
	return p.orRegistry("Resumed", command.TenantAPI.ResumeRegistry, p.eachStack(&cobra.Command{
		Use:   "resume {STACK | --all | -A | tenantregistry/NAME}",
		Short: "Resume suspended stacks, or a suspended registry",
		Example: `  terrier resume network
  terrier resume --all -n apps
  terrier resume tenantregistry/customers`,
	}, "Resumed", "", command.StackAPI.Resume))
}

// orRegistry lets a command about stacks also take a registry of tenants, named
// as kubectl does.
func (p operateCommands) orRegistry(done string, do func(command.TenantAPI, context.Context, query.Key) error, c *cobra.Command) *cobra.Command {
	stacks := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || !query.IsRegistry(args[0]) {
			return stacks(cmd, args)
		}
		if cmd.Flags().Changed("all") || cmd.Flags().Changed("selector") || p.all {
			return usage("--all, --all-namespaces and --selector cannot be used with a registry")
		}
		t, key, err := p.oneOf(args[0], query.RegistryWords)
		if err != nil {
			return err
		}
		if err := do(t, cmd.Context(), key); err != nil {
			return err
		}
		p.say("%s the registry %s.\n", done, key)
		return nil
	}
	return c
}

// eachStack makes a command that acts on one stack, or on several. A note follows once what was done.
func (p operateCommands) eachStack(c *cobra.Command, done, note string, do func(command.StackAPI, context.Context, query.Key) error) *cobra.Command {
	var (
		all      bool
		selector string
	)
	c.GroupID, c.Args, c.ValidArgsFunction = groupOperate, cobra.MaximumNArgs(1), p.names
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if many := all || p.all || selector != ""; many == (len(args) == 1) {
			return usage("name one stack, or select several with --all, --all-namespaces or --selector")
		}
		if all && p.connection.Namespace == "" {
			p.all = true // as tfctl has it
		}
		filter, s, err := p.filter(cmd.Context(), args, selector)
		if err != nil {
			return err
		}
		keys := []query.Key{filter.Key()}
		if len(args) == 0 {
			if keys, err = chosen(cmd.Context(), s, filter); err != nil {
				return err
			}
		}
		var errs []error
		for _, key := range keys {
			if err := do(s, cmd.Context(), key); err != nil {
				errs = append(errs, err)
				continue
			}
			p.say("%s %s.\n", done, key)
		}
		if len(errs) < len(keys) {
			p.note("%s", note)
		}
		return errors.Join(errs...)
	}
	p.allFlag(c)
	c.Flags().BoolVar(&all, "all", false, "all stacks of the namespace of -n, or without -n of all namespaces")
	c.Flags().StringVarP(&selector, "selector", "l", "", "all stacks with these `labels`")
	return c
}

func chosen(ctx context.Context, s command.StackAPI, f query.Filter) ([]query.Key, error) {
	list, err := s.List(ctx, f)
	if err != nil {
		return nil, err
	}
	var keys []query.Key
	for _, st := range list {
		keys = append(keys, st.Key())
	}
	return keys, nil
}

func (p operateCommands) cancel() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "cancel STACK",
		Short: "Cancel the run of a stack",
		Long: `Interrupts the engine of the run, once. The engine then ends the operations that it has
begun, begins no others, and writes the state. It has a time of grace for that: 30
minutes for an apply or a destroy, unless the platform or the stack sets another one,
and 1 minute for a plan. After that it is killed.

Terrier does not repeat a cancelled run by itself. To go on, run "terrier replan".`,
		Example:           `  terrier cancel network`,
		GroupID:           groupOperate,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			st, err := s.Get(cmd.Context(), key)
			if err != nil {
				return err
			}
			r := st.Run
			if r == nil {
				return command.NoRun(key)
			}
			if c := st.Cancelled; c != nil && c.Run == r.ID {
				p.say("The run %s was cancelled at %s. Its engine has until %s to end and to write the state.\n", r.ID, p.at(c.At), p.at(c.Until))
				return nil
			}
			ok, err := p.agreed(yes, "Cancel the %s %s of %s? What it has done by now is done.", r.Kind, r.ID, key)
			if err != nil || !ok {
				return err
			}
			if _, err := s.Cancel(cmd.Context(), key, r.ID); err != nil {
				return err
			}
			p.say("The run %s of %s is being cancelled. Watch it with: terrier logs %[2]s -f\n", r.ID, key)
			return nil
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "cancel the run without asking")
	return c
}

func (p operateCommands) unlock() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "force-unlock STACK",
		Short: "Break the lock that blocks a stack",
		Long: `Breaks one lock on the state: the lock with the given ID, if it is the one that
blocks the stack. A lock means that another writer uses the state. Make sure that
this writer no longer runs: two writers at once can lose resources from the state.

To show the lock and its holder, run "terrier describe".`,
		Example:           `  terrier force-unlock network --lock-id f2ab6b2e-5d0c-4b5e-9f66-0a6e7c2b6f1d`,
		GroupID:           groupOperate,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if id == "" {
				return usage("--lock-id is missing")
			}
			s, key, err := p.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := s.Unlock(cmd.Context(), key, id); err != nil {
				return err
			}
			p.say("The lock %s of %s will be broken.\n", id, key)
			return nil
		},
	}
	c.Flags().StringVar(&id, "lock-id", "", "the `ID` of the lock")
	return c
}

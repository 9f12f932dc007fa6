package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// operateCommands act on stacks.
type operateCommands struct{ *program }

func (p operateCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.replan(), p.suspend(), p.resume(), p.cancel(), p.unlock(), p.breakGlass()}
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

// Package cli is the command line. Each command reads its arguments, asks
// or commands, and lays out the answer: it decides nothing and knows no
// Kubernetes. Text from outside, for instance a log, a message or a name, reaches
// the terminal with its control characters made visible.
//
// Start reading at Main.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Main runs one command and returns the exit code, which is that of the fault
// table. The extra commands need packages that this one may not import.
func Main(env Env, extra ...*cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // the second signal ends the program
	return run(ctx, env, extra...)
}

// interrupted is the exit code of a command that was interrupted.
const interrupted = 130

func run(ctx context.Context, env Env, extra ...*cobra.Command) int {
	p := newProgram(env)
	root := p.root(extra)
	root.SetArgs(append([]string{}, env.Args...)) // nil would be those of the process
	err := root.ExecuteContext(ctx)
	if e, ok := errors.AsType[exit](err); ok && p.failed == nil {
		return int(e)
	}
	if p.failed != nil {
		err = p.failed
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return interrupted
	}
	p.complain(err)
	if p.changesExit {
		return 1 // 2 means that there are changes
	}
	return fault.Of(err).Meaning().Exit
}

// exit ends a command with a code and without a message.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

const reasonUsage = "Usage"

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, reasonUsage, fmt.Errorf(format, args...))
}

// program is what the commands share.
type program struct {
	*printer
	*cluster
	changesExit bool // the exit code says whether there are changes
}

func newProgram(env Env) *program {
	return &program{printer: &printer{Env: env}, cluster: &cluster{}}
}

// families are the commands by theme. To add a command, add it to the family
// that it belongs to.
func (p *program) families() [][]*cobra.Command {
	return [][]*cobra.Command{
		stackCommands{p}.commands(), runCommands{p}.commands(), decideCommands{p}.commands(), operateCommands{p}.commands(),
		stateCommands{p}.commands(), retainedCommands{p}.commands(), tenantCommands{p}.commands(), registryCommands{p}.commands(),
		templateCommands{p}.commands(), importCommands{p}.commands(), auditCommands{p}.commands(), serverCommands{p}.commands(),
		moduleCommands{p}.commands(), providerCommands{p}.commands(), policyCommands{p}.commands(), identityCommands{p}.commands(),
		scanCommands{p}.commands(), statusCommands{p}.commands(), inventoryCommands{p}.commands(),
	}
}

// Groups of commands in the help.
const (
	groupView    = "view"
	groupDecide  = "decide"
	groupOperate = "operate"
)

func (p *program) root(extra []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "terrier",
		Short: "Reconcile Terraform and OpenTofu stacks",
		Long: `Terrier reconciles stacks. A stack is a root module with its inputs and its state,
described by a Terraform object in a Kubernetes API.

The commands use the same cluster as kubectl: --kubeconfig, KUBECONFIG, the cluster
that "terrier up" started in this directory (` + client.LocalKubeconfig + `), or the default kubeconfig.
Each command acts as the user of that kubeconfig, with the permissions of that user.

A kubeconfig is not needed where there is a token: with TERRIER_SERVER (or --server)
and TERRIER_TOKEN or TERRIER_TOKEN_FILE, commands use only the HTTP API of that server,
as the user of the token. The token of a kubeconfig goes only to the server of its cluster.

` + confirmations,
		Example: `  terrier up --quickstart
  terrier get -A
  terrier plan network
  terrier approve network`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	p.bind(root, p.Env)
	// Hidden, since there is a command for it; on every command, since libraries add a
	// flag of the same name to every program.
	version := root.PersistentFlags().Bool("version", false, "print the version")
	_ = root.PersistentFlags().MarkHidden("version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			p.say("%s\n", p.Version)
			return nil
		}
		return cmd.Help()
	}
	root.AddGroup(&cobra.Group{ID: groupView, Title: "View:"}, &cobra.Group{ID: groupDecide, Title: "Decide:"}, &cobra.Group{ID: groupOperate, Title: "Operate:"})
	for _, family := range p.families() {
		root.AddCommand(family...)
	}
	for _, c := range extra {
		if c.GroupID == "" && !c.Hidden {
			c.GroupID = groupOperate
		}
		root.AddCommand(c)
	}
	registryTokenCommands{p}.below(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	checkArgs(root)
	return root
}

// group makes a command that only has commands.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	c.AddCommand(commands...)
	return c
}

// checkArgs makes a wrong number of arguments an error of usage everywhere.
func checkArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil || fault.Reason(err, "") == reasonUsage {
				return err
			}
			return misuse(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// misuse is the error for wrong arguments. It shows the usage of the command,
// in place of the library's count.
func misuse(cmd *cobra.Command, args []string) error {
	if !cmd.HasAvailableSubCommands() {
		return usage("%s the usage is: %s", given(args), cmd.UseLine())
	}
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return usage("unknown command %q of %s; did you mean: %s", args[0], cmd.CommandPath(), strings.Join(like, ", "))
	}
	return usage("unknown command %q of %s", args[0], cmd.CommandPath())
}

func given(args []string) string {
	if len(args) == 0 {
		return "an argument is missing;"
	}
	return query.Count(len(args), "argument") + " given, which does not match;"
}

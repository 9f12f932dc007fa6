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
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Env is the environment of a program.
type Env struct {
	Args    []string // without the program's name
	Environ []string // as os.Environ returns it
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Dir     string // the working directory
	Now     func() time.Time
	Version string
}

// Main runs one command and returns the exit code, which is that of the fault
// table. The extra commands need packages that this one may not import.
func Main(env Env, extra ...*cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, env, extra...)
}

// interrupted is the exit code of a command that was interrupted.
const interrupted = 130

func run(ctx context.Context, env Env, extra ...*cobra.Command) int {
	p := &program{Env: env}
	root := p.root(extra)
	root.SetArgs(append([]string{}, env.Args...)) // nil would be those of the process
	err := root.ExecuteContext(ctx)
	if e, ok := errors.AsType[exit](err); ok {
		return int(e)
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

// complain prints the error in one sentence, and the next step in another.
func (p *program) complain(err error) {
	fmt.Fprintf(p.Stderr, "terrier: %s\n", clean(err.Error()))
	hint := command.Hint(err)
	if fault.Reason(err, "") == reasonUsage {
		hint = "To list the commands: terrier --help. For one command: terrier COMMAND --help"
	}
	if hint != "" {
		fmt.Fprintf(p.Stderr, "  %s\n", hint)
	}
}

const reasonUsage = "Usage"

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, reasonUsage, fmt.Errorf(format, args...))
}

// program is what the commands share.
type program struct {
	Env
	connection  client.Connection
	all         bool // namespaces
	changesExit bool // the exit code says whether there are changes
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
Each command acts as the user of that kubeconfig, with the permissions of that user.`,
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
	p.bind(root)
	// Hidden, since there is a command for it; on every command, since libraries add a
	// flag of the same name to every program.
	version := root.PersistentFlags().Bool("version", false, "print the version")
	_ = root.PersistentFlags().MarkHidden("version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			_, err := fmt.Fprintln(p.Stdout, p.Version)
			return err
		}
		return cmd.Help()
	}
	root.AddGroup(&cobra.Group{ID: groupView, Title: "View:"}, &cobra.Group{ID: groupDecide, Title: "Decide:"}, &cobra.Group{ID: groupOperate, Title: "Operate:"})
	root.AddCommand(
		p.get(), p.describe(), p.explain(), p.plan(), p.logs(), p.runs(), p.outputs(), p.ui(),
		p.approve(), p.reject(), p.repair(), p.replan(), p.suspend(), p.resume(), p.unlock(), p.state(), p.retained(), p.breakGlass(),
		p.tenants(), p.tenant(), p.rows(), p.render(), p.rollout(), p.imports(),
		p.push(), p.audit(), p.notifications(), p.version(),
	)
	for _, c := range extra {
		if c.GroupID == "" && !c.Hidden {
			c.GroupID = groupOperate
		}
		root.AddCommand(c)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	checkArgs(root)
	return root
}

// bind adds the flags that select a cluster, as those of kubectl.
func (p *program) bind(root *cobra.Command) {
	c := &p.connection
	f := root.PersistentFlags()
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "the kubeconfig `file` to use")
	f.StringVar(&c.Context, "context", "", "the `context` of the kubeconfig to use")
	f.StringVarP(&c.Namespace, "namespace", "n", "", "the `namespace` to use")
	f.StringVar(&c.Server, "server", "", "the `URL` of the Terrier server, which stores logs and plans (TERRIER_SERVER); by default the server of the cluster")
	c.Path, c.Home, c.Dir, c.Now = p.getenv("KUBECONFIG"), p.getenv("HOME"), p.Dir, p.Now
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if c.Server == "" {
			c.Server = p.getenv("TERRIER_SERVER")
		}
	}
	// An error means that the flag does not exist, which it does.
	_ = root.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	_ = root.RegisterFlagCompletionFunc("context", cobra.NoFileCompletions)
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

// getenv reads a variable; the last of several counts.
func (p *program) getenv(name string) string {
	value := ""
	for _, e := range p.Environ {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			value = v
		}
	}
	return value
}

// stacks connects to the cluster.
func (p *program) stacks() (*command.Stacks, error) {
	s, namespace, err := client.Connect(p.connection)
	p.connection.Namespace = namespace
	return s, err
}

// one connects and reads the name of the stack of a command.
func (p *program) one(name string) (*command.Stacks, query.Key, error) {
	s, err := p.stacks()
	if err != nil {
		return nil, query.Key{}, err
	}
	key, err := query.ParseKey(name, p.connection.Namespace)
	return s, key, err
}

// names completes the names of stacks.
func (p *program) names(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, err := p.stacks()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
	defer cancel()
	list, err := s.List(ctx, query.Filter{Namespace: p.connection.Namespace})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []cobra.Completion
	for _, st := range list {
		out = append(out, cobra.CompletionWithDesc(st.Name, clean(st.Phase)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

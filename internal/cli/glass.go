package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p operateCommands) breakGlass() *cobra.Command {
	var (
		end, yes bool
		timeout  time.Duration
	)
	c := &cobra.Command{
		Use:     "break-glass STACK [-- COMMAND…]",
		Aliases: []string{"break-the-glass", "bg", "btg"},
		Short:   "Work on a stack in a break-glass session",
		Long: `Starts a break-glass session. Terrier plans and applies nothing for the stack until
--end, or until the session times out. With a command, Terrier runs this command of
the engine as any run: in a sandbox, with the directory, the variables, the
credentials and the state of the stack, and with the state locked. The command also
works when the module or its providers are broken, if it needs neither. The audit log
records the command, its effect and its user.

These commands are available:
  ` + strings.Join(allowedCommands(), "\n  ") + `

The operator has to allow it with --allow-break-the-glass.`,
		Example: `  terrier break-glass network
  terrier break-glass network -- state list
  terrier break-glass network --yes -- state rm aws_instance.a
  terrier break-glass network --end`,
		GroupID:           groupOperate,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			order := args[1:]
			switch {
			case len(order) > 0 && cmd.ArgsLenAtDash() != 1:
				return usage("put -- between the stack and the command")
			case len(order) > 0 && end:
				return usage("--end takes no command")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			s, key, err := p.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if command.ChangesState(order) {
				if agreed, err := p.agreed(yes, "Run %q on the state of %s?", strings.Join(order, " "), key); !agreed {
					return err
				}
			}
			if end {
				if err := s.EndBreakGlass(ctx, key); err != nil {
					return err
				}
				p.say("The break-glass session of %s ended. Terrier reconciles the stack again.\n", key)
				return nil
			}
			return p.runInSession(ctx, s, key, order)
		},
	}
	c.Flags().BoolVar(&end, "end", false, "end the session")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "run a command that changes the state without asking")
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "how long to wait for the command")
	return c
}

func allowedCommands() []string {
	var out []string
	for _, c := range command.AllowedCommands() {
		out = append(out, strings.TrimSpace(c.Words+" "+c.Takes))
	}
	return out
}

func (p operateCommands) runInSession(ctx context.Context, s command.StackAPI, key query.Key, order []string) error {
	g, err := s.BreakGlass(ctx, key)
	if err != nil {
		return err
	}
	if len(order) == 0 {
		p.say("The break-glass session of %s is open until %s. Terrier plans and applies nothing until it ends.\nTo run a command:   terrier break-glass %s -- state list\nTo end the session: terrier break-glass %[3]s --end\n",
			key, g.Until.Local().Format(time.DateTime), stateCommands(p).argument(key))
		return nil
	}
	out := &cleanWriter{w: p.Stdout}
	said := &afterHeading{word: order[0], to: out}
	instead, err := command.RunCommand(ctx, s, key, command.CommandOrder{ID: p.Now().UTC().Format(time.RFC3339Nano), Args: order}, said)
	if err != nil {
		p.print(p.Stderr, cleanText(string(said.before)))
	}
	if instead != "" {
		p.note("terrier: the command ran with the configuration that was applied last, because the current one cannot be read: %s\n", instead)
	}
	return errors.Join(err, out.Close())
}

// afterHeading passes on the part of a log after the heading of the requested
// command, and keeps the end of the part before it.
type afterHeading struct {
	word   string
	to     io.Writer
	before []byte
	begun  bool
}

// beforeKept bounds the log of preparing the directory that is shown.
const beforeKept = 64 << 10

func (a *afterHeading) Write(b []byte) (int, error) {
	if a.begun {
		return a.to.Write(b)
	}
	a.before = append(a.before, b...)
	from := 0
	for {
		end := bytes.IndexByte(a.before[from:], '\n')
		if end < 0 {
			break
		}
		line := strings.Fields(string(a.before[from : from+end]))
		from += end + 1
		if len(line) == 3 && line[0] == "$" && line[2] == a.word {
			a.begun = true
			rest := a.before[from:]
			a.before = a.before[:from]
			if _, err := a.to.Write(rest); err != nil {
				return 0, err
			}
			return len(b), nil
		}
	}
	if over := len(a.before) - beforeKept; over > 0 {
		a.before = append(a.before[:0], a.before[over:]...)
	}
	return len(b), nil
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p *program) breakGlass() *cobra.Command {
	var (
		end     bool
		timeout time.Duration
	)
	c := &cobra.Command{
		Use:     "break-glass STACK [-- COMMAND…]",
		Aliases: []string{"break-the-glass", "bg", "btg"},
		Short:   "Work on a stack by hand",
		Long: `Breaks the glass of a stack: nothing is planned or applied by itself until --end,
or until the session ends by itself. With a command, that one command of the
engine is run as any run is: in its box, with the stack's directory, variables,
credentials and state, and with its lock held. That works also when the module or
its providers are broken, as far as the command needs neither. What it changes is
recorded with who asked for it.

These commands can be run:
  ` + strings.Join(handCommands(), "\n  ") + `

The operator has to allow it with --allow-break-the-glass.`,
		Example: `  terrier break-glass network
  terrier break-glass network -- state list
  terrier break-glass network -- state rm aws_instance.a
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
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			if end {
				if err := s.EndGlass(ctx, key); err != nil {
					return err
				}
				_, err := fmt.Fprintf(p.Stdout, "The session of %s is over; it goes on by itself.\n", clean(key.String()))
				return err
			}
			return p.workByHand(ctx, s, key, order)
		},
	}
	c.Flags().BoolVar(&end, "end", false, "end the session")
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "how long to wait for the command")
	return c
}

func handCommands() []string {
	var out []string
	for _, c := range command.HandCommands() {
		out = append(out, strings.TrimSpace(c.Words+" "+c.Takes))
	}
	return out
}

func (p *program) workByHand(ctx context.Context, s *command.Stacks, key query.Key, order []string) error {
	g, err := s.BreakGlass(ctx, key)
	if err != nil {
		return err
	}
	if len(order) == 0 {
		_, err := fmt.Fprintf(p.Stdout, "Nothing is planned or applied by itself for %s until %s.\nRun a command with: terrier break-glass %s -- state list\nEnd it with:        terrier break-glass %[3]s --end\n",
			clean(key.String()), g.Until.Local().Format(time.DateTime), clean(key.Name))
		return err
	}
	out := &cleanWriter{w: p.Stdout}
	said := &afterHeading{word: order[0], to: out}
	instead, err := s.RunByHand(ctx, key, order, said)
	if err != nil {
		_, werr := p.Stderr.Write([]byte(cleanText(string(said.before))))
		err = errors.Join(err, werr)
	}
	if instead != "" {
		_, werr := fmt.Fprintf(p.Stderr, "terrier: run with what was applied last, since what is asked for now cannot be read: %s\n", clean(instead))
		err = errors.Join(err, werr)
	}
	return errors.Join(err, out.Close())
}

// afterHeading passes on what a log holds after the line with which the command
// that was asked for begins, and keeps the end of what was before.
type afterHeading struct {
	word   string
	to     io.Writer
	before []byte
	begun  bool
}

// beforeKept bounds what is shown of how a directory was prepared.
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

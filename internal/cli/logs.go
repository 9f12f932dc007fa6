package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// runCommands show the runs of stacks, their plans and their outputs.
type runCommands struct{ *program }

func (p runCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.plan(), p.logs(), p.runs(), p.outputs()}
}

// ofRecorded is ofStack for what is recorded of a stack. It says that a stack was deleted.
func (p runCommands) ofRecorded(do func(context.Context, command.StackAPI, query.Key) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.stacks()
		if err != nil {
			return err
		}
		key, last, err := query.FindRecorded(cmd.Context(), p.connection.StackKinds(), s, args[0], p.connection.Namespace)
		if err != nil {
			return err
		}
		if last != nil {
			p.note("The stack %s is gone since %s (%s ago). Its last run, %s, ended %s and is kept until %s.\n", key, last.Gone.UTC().Format(time.RFC3339),
				age(p.Now(), last.Gone), last.ID, last.Outcome, last.Gone.Add(query.GoneFor).UTC().Format(time.DateOnly))
			if last.Kind == stack.DestroyRun && last.Resources > 0 {
				p.note("Resources that it left in the state, which is kept: %d.\n", last.Resources)
			}
		}
		return do(cmd.Context(), s, key)
	}
}

func (p runCommands) logs() *cobra.Command {
	var (
		run string
		o   query.LogOptions
	)
	c := &cobra.Command{
		Use:     "logs STACK",
		Aliases: []string{"log"},
		Short:   "Print the log of a run",
		Long: `Prints the log of the active run, or of the last one. Secret values that the run knew
are masked. "terrier runs" lists the recorded runs. Of a deleted stack, the last run is
kept for 30 days; its destroy is mostly that.`,
		Example: `  terrier logs network
  terrier logs network -f
  terrier logs network --timestamps
  terrier logs network --run apply-6d9a1f0e`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofRecorded(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			r, err := s.Log(ctx, key, run, o)
			if err != nil {
				return err
			}
			out := &cleanWriter{w: p.Stdout}
			_, err = io.Copy(out, r)
			return errors.Join(err, out.Close(), r.Close())
		}),
	}
	c.Flags().StringVar(&run, "run", "", "the `name` of the run")
	c.Flags().BoolVarP(&o.Follow, "follow", "f", false, "follow the log until the run has ended")
	c.Flags().BoolVar(&o.Timestamps, "timestamps", false, "begin each line with its time")
	return c
}

func (p runCommands) runs() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "runs STACK",
		Short: "List the runs of a stack, newest first",
		Long: `Lists the runs of a stack, newest first. Where runs signed in elsewhere, IDENTITY has the phase
and the names of their tokens; -o json has audiences, roles and the IDs of the tokens, by which
the other system and "terrier audit list --what identity-issued" know them.`,
		Example: `  terrier runs network
  terrier runs network -o json`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofRecorded(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			runs, err := s.Runs(ctx, key)
			if err != nil || p.structured(f, map[string]any{"items": runs}) {
				return err
			}
			if len(runs) == 0 {
				p.say("The stack %s has no runs yet. To see why: terrier explain %s -n %s\n", key, key.Argument(), key.Namespace)
				return nil
			}
			t := &table{head: []string{"RUN", "KIND", "OUTCOME", "CHANGES", "STARTED", "TOOK", "MESSAGE"}}
			identified := slices.ContainsFunc(runs, func(r query.Report) bool { return r.Identity != nil })
			if identified {
				t.head = slices.Insert(t.head, len(t.head)-1, "IDENTITY")
			}
			for _, r := range runs {
				outcome, colour := string(r.Outcome), green
				switch {
				case outcome == "":
					outcome, colour = string(r.Phase), yellow
				case outcome != "Succeeded":
					colour = red
				}
				end := r.Finished
				if end.IsZero() {
					end = p.Now()
				}
				changed := fmt.Sprintf("+%d ~%d -%d", r.Changes.Add, r.Changes.Change, r.Changes.Destroy)
				if r.Changes.Forget > 0 {
					changed += fmt.Sprintf(" .%d", r.Changes.Forget)
				}
				cells := []cell{plain(r.ID), plain(string(r.Kind)), {outcome, colour}, plain(changed), plain(age(p.Now(), r.Started)),
					plain(end.Sub(r.Started).Round(100 * time.Millisecond).String())}
				if identified {
					cells = append(cells, plain(r.Identity.String()))
				}
				t.add(append(cells, plain(cut(r.Message, messageWidth)))...)
			}
			p.table(t)
			return nil
		}),
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

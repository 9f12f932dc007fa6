package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
)

// stateBytes bounds a state, as a run does.
const stateBytes = 256 << 20

func (p *program) statePull() *cobra.Command {
	var version, rescued, file string
	c := &cobra.Command{
		Use:   "pull STACK",
		Short: "Write a state out as it is",
		Long: `Writes the state of a stack to standard output, or to a file, as it is: with all
secrets that it holds. --version takes an older one, --rescued the state of a run
that its backend refused.`,
		Example: `  terrier state pull network -o network.tfstate
  terrier state pull network --version 17
  terrier state pull network --rescued apply-5e884898da28`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version != "" && rescued != "" {
				return usage("--version and --rescued are two different states")
			}
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			var state []byte
			if rescued != "" {
				state, err = s.RescuedState(cmd.Context(), key, rescued)
			} else {
				state, err = s.PullState(cmd.Context(), key, version)
			}
			if err != nil {
				return err
			}
			if file == "" || file == "-" {
				_, err = p.Stdout.Write(state)
				return err
			}
			return p.writePrivately(file, state)
		},
	}
	c.Flags().StringVar(&version, "version", "", "the `serial` of an older version, or the beginning of its digest")
	c.Flags().StringVar(&rescued, "rescued", "", "the `run` whose state the backend refused")
	c.Flags().StringVarP(&file, "output", "o", "", "the `file` to write, for its owner only")
	return c
}

// writePrivately writes a file that only its owner can read.
func (p *program) writePrivately(name string, content []byte) error {
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.Dir, name)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return os.Chmod(name, 0o600) // the file may have been there
}

func (p *program) statePush() *cobra.Command {
	var (
		force, yes bool
	)
	c := &cobra.Command{
		Use:   "push STACK FILE",
		Short: "Store a state from a file",
		Long: `Stores the state in a file, or from standard input if that is "-", as the state of
a stack. It must be of the lineage that is stored and have a higher serial. With
--force lineage and serial are rewritten so that it follows whatever is there.

What would change is shown first. The lock is taken meanwhile, and a plan is asked
for afterwards.`,
		Example: `  terrier state push network network.tfstate
  terrier state push network restored.tfstate --force --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "-" && !yes {
				return usage("what comes from standard input is stored without a question: say --yes")
			}
			state, err := p.readState(args[1])
			if err != nil {
				return err
			}
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			change, err := s.PlanPush(cmd.Context(), key, state, force)
			if err != nil {
				return err
			}
			return p.storeState(cmd.Context(), s, change, yes)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "rewrite lineage and serial so that it follows what is stored")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "store it without asking")
	return c
}

func (p *program) readState(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(p.Stdin, stateBytes))
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.Dir, name)
	}
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil, fault.New(fault.Missing, "FileMissing", fmt.Errorf("there is no file %s", name))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, stateBytes))
}

func (p *program) stateRollback() *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:   "rollback STACK SERIAL",
		Short: "Make an older version of a state the newest",
		Long: `Stores what an older version of the state says again, under a serial that follows
the newest. Nothing in the world changes by it: the plan that is asked for then
says what would.

How the resources differ is shown first. "terrier state versions" lists what is
kept; where one serial has several versions, name the digest.`,
		Example: `  terrier state rollback network 17
  terrier state rollback network 17 --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			change, err := s.PlanRollback(cmd.Context(), key, args[1], force)
			if err != nil {
				return err
			}
			return p.storeState(cmd.Context(), s, change, yes)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "even if what is stored now is kept nowhere else")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do it without asking")
	return c
}

// storeState shows a change of a state, asks, and makes it.
func (p *program) storeState(ctx context.Context, s *command.Stacks, c command.StateChange, yes bool) error {
	for _, part := range []struct {
		sign, what string
		addresses  []string
	}{{"-", "no longer in the state", c.Diff.Gone}, {"+", "in the state again", c.Diff.Added}, {"~", "with other attributes", c.Diff.Changed}} {
		for _, a := range part.addresses {
			if _, err := fmt.Fprintf(p.Stdout, "%s %s (%s)\n", part.sign, clean(a), part.what); err != nil {
				return err
			}
		}
	}
	from := "nothing"
	if c.From.Lineage != "" {
		from = fmt.Sprintf("serial %d", c.From.Serial)
	}
	if !yes {
		agreed, err := p.confirm(fmt.Sprintf("Replace %s of the state of %s by serial %d?", from, clean(c.Key.String()), c.To.Serial))
		if err != nil || !agreed {
			return err
		}
	}
	if err := s.WriteState(ctx, c); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.Stdout, "The state of %s is serial %d now, in the place of %s. A plan is asked for: terrier plan %s\n", clean(c.Key.String()), c.To.Serial, from, clean(c.Key.Name))
	return err
}

func (p *program) stateAccept() *cobra.Command {
	return &cobra.Command{
		Use:   "accept STACK",
		Short: "Agree to a state that should not be there",
		Long: `Says that what is stored as the state of a stack now may stand there, although
another version was expected: a stack in StateTampered or StateWentBack goes on
from it. What was expected stays among the versions. Should anything else be stored
by the time the controller looks, nothing is accepted.`,
		Example:           `  terrier state accept network`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			known, err := s.AcceptState(cmd.Context(), key)
			if err != nil {
				return err
			}
			what := "that there is no state"
			if known.Lineage != "" {
				what = known.String()
			}
			_, err = fmt.Fprintf(p.Stdout, "Accepted for %s: %s.\n", clean(key.String()), clean(what))
			return err
		},
	}
}

func (p *program) stateLock() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "lock STACK",
		Short: "Keep everybody off a state",
		Long: `Takes the lock on the state of a stack in your name. Until it is freed no run of
Terrier starts, and no other program that locks the state gets it; the stack says
who holds it, and since when.`,
		Example: `  terrier state lock network --reason "moving subnets by hand"
  terrier state unlock network`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			l, err := s.LockState(cmd.Context(), key, reason)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "The state of %s is locked by %s, lock %s. Free it with: terrier state unlock %s\n", clean(key.String()), clean(l.Who), clean(l.ID), clean(key.Name))
			return err
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the `text` that others are shown")
	return c
}

func (p *program) stateUnlock() *cobra.Command {
	return &cobra.Command{
		Use:   "unlock STACK [LOCK-ID]",
		Short: "Free the lock on a state",
		Long: `Frees the lock that you took on the state of a stack. The lock of somebody else is
freed only if its exact identifier is given: be sure that nobody is at work. The
lock of a run that goes on is never freed.`,
		Example: `  terrier state unlock network
  terrier state unlock network f2ab6b2e-5d0c-4b5e-9f66-0a6e7c2b6f1d`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			l, err := s.UnlockState(cmd.Context(), key, id)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "The lock %s on the state of %s is free.\n", clean(l.ID), clean(key.String()))
			return err
		},
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// inline is a value on one line.
func inline(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// stateBytes bounds a state, as a run does.
const stateBytes = 256 << 20

func (p stateCommands) statePull() *cobra.Command {
	var version, rescued, file string
	c := &cobra.Command{
		Use:   "pull STACK",
		Short: "Download a state",
		Long: `Writes the state of a stack to standard output or to a file, with all its secrets.
--version selects an older version. --rescued selects the state of a run that its
backend rejected.`,
		Example: `  terrier state pull network -o network.tfstate
  terrier state pull network --version 17
  terrier state pull network --rescued apply-5e884898da28`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version != "" && rescued != "" {
				return usage("--version and --rescued exclude each other")
			}
			s, key, err := p.one(cmd.Context(), args[0])
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
			if file == "" || file == stdin {
				_, err = p.Stdout.Write(state)
				return err
			}
			return p.writePrivately(file, state)
		},
	}
	c.Flags().StringVar(&version, "version", "", "the `serial` of an older version, or the beginning of its digest")
	c.Flags().StringVar(&rescued, "rescued", "", "the `run` whose state the backend rejected")
	c.Flags().StringVarP(&file, "output", "o", "", "the `file` to write; only its owner can read it")
	return c
}

// writePrivately writes a file that only its owner can read.
func (p stateCommands) writePrivately(name string, content []byte) error {
	name = p.path(name)
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return os.Chmod(name, 0o600) // the file may have been there
}

func (p stateCommands) statePush() *cobra.Command {
	var (
		force, yes bool
	)
	c := &cobra.Command{
		Use:   "push STACK FILE",
		Short: "Upload a state from a file",
		Long: `Stores the state from a file, or from standard input if the file is "-", as the state
of a stack. The state needs the lineage of the stored state and a higher serial. With
--force the command rewrites its lineage and serial so that it follows the stored
state.

The command shows the changes first. It locks the state while it writes, and requests
a plan afterwards. Of a stack that runs a script without a plan, the script is run.`,
		Example: `  terrier state push network network.tfstate
  terrier state push network restored.tfstate --force --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == stdin && !yes {
				return usage("a state from standard input is stored without a question: add --yes")
			}
			state, err := p.readFile(args[1], stateBytes)
			if err != nil {
				return err
			}
			s, key, err := p.one(cmd.Context(), args[0])
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
	c.Flags().BoolVar(&force, "force", false, "rewrite lineage and serial so that the state follows the stored one")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "store the state without asking")
	return c
}

func (p stateCommands) stateRollback() *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:   "rollback STACK SERIAL",
		Short: "Roll back a state to an older version",
		Long: `Stores an older version of the state again, with the next serial. The rollback itself
changes no resources. The command requests a plan afterwards, which shows the changes
of resources that follow.

The command shows the differences first. "terrier state versions" lists the stored
versions. If several versions have the same serial, use the digest.`,
		Example: `  terrier state rollback network 17
  terrier state rollback network 17 --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(cmd.Context(), args[0])
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
	c.Flags().BoolVar(&force, "force", false, "also if there is no other copy of the stored state")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "roll back without asking")
	return c
}

// storeState shows a change of a state, asks, and stores it.
func (p stateCommands) storeState(ctx context.Context, s command.StackAPI, c command.StateChange, yes bool) error {
	for _, part := range []struct {
		sign, what string
		addresses  []string
	}{{"-", "removed from the state", c.Diff.Gone}, {"+", "added to the state", c.Diff.Added}, {"~", "attributes changed", c.Diff.Changed}} {
		for _, a := range part.addresses {
			p.say("%s %s (%s)\n", part.sign, a, part.what)
		}
	}
	from := "nothing"
	if c.From.Lineage != "" {
		from = fmt.Sprintf("serial %d", c.From.Serial)
	}
	question := "Replace %s of the state of %s with serial %d?"
	if c.RunsScript {
		question += " The script of the stack runs then, without a plan."
	}
	if agreed, err := p.agreed(yes, question, from, c.Key, c.To.Serial); !agreed {
		return err
	}
	if err := s.WriteState(ctx, c); err != nil {
		return err
	}
	next := "A plan was requested. To show it: terrier plan "
	if c.RunsScript {
		next = "The script of the stack runs now. To follow it: terrier logs -f "
	}
	p.say("The state of %s now has serial %d, in place of %s. %s%s\n", c.Key, c.To.Serial, from, next, p.argument(c.Key))
	return nil
}

// argument names a stack in a command that a user may copy, with the -n that the user gave.
func (p stateCommands) argument(key query.Key) string {
	name := key.Name
	if key.Kind != "" {
		name = key.Kind + "/" + name
	}
	if p.connection.Namespace != "" {
		name += " -n " + key.Namespace
	}
	return name
}

func (p stateCommands) stateAccept() *cobra.Command {
	var (
		yes    bool
		reason string
	)
	c := &cobra.Command{
		Use:   "accept STACK",
		Short: "Accept an unexpected state",
		Long: `Accepts the stored state of a stack, although Terrier expected another version. A
stack with the reason StateTampered or StateRegressed then continues with the stored
state. The expected version stays among the versions. If the stored state changes
before the controller accepts it, nothing is accepted.

A stack with the reason StateMissing did not find its last known state: its place was
changed, or emptied. Accepting lets it begin with what is in the new place. Resources
that are not in that state are created a second time. The command then needs a reason,
which the audit log keeps, and counts for that place alone. "terrier retained" lists the
state that was given up, with the place where it was.

A stack with the reason StateNotAdopted that is being deleted destroys the resources
that its state holds once the state is accepted.

If Terrier found no unexpected state, there is nothing to accept, and the exit code is 5.`,
		Example: `  terrier state accept network
  terrier state accept network --yes
  terrier state accept network --reason "the old account was closed"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			st, err := command.UnexpectedState(ctx, s, key)
			if err != nil {
				return err
			}
			question := "Accept the stored state of %s, in place of the version that Terrier expects?"
			missing := st.Phase == string(stack.StateMissing)
			if st.Deleting && st.Phase == string(stack.StateNotAdopted) {
				question = "Accept the stored state of %s? The stack is being deleted: the resources that the state holds are destroyed then."
			}
			if missing {
				if strings.TrimSpace(reason) == "" {
					return command.NeedsReason(st, p.argument(key))
				}
				p.say("%s\n\n", st.Message)
				question = "Let %s continue without its last known state? Resources that are not in the state that is there are created a second time, and Terrier no longer manages the first ones."
			}
			if agreed, err := p.agreed(yes, question, key); !agreed {
				return err
			}
			known, err := s.AcceptState(ctx, key, reason)
			if err != nil {
				return err
			}
			what := "that there is no state"
			if known.Digest != "" {
				what = known.String()
			} else if known.Lineage != "" {
				what = fmt.Sprintf("serial %d of the lineage %s", known.Serial, known.Lineage)
			}
			p.say("Accepted for %s: %s.\n", key, what)
			if missing {
				p.say("Once the next run begins, the state that was given up is listed with its place: terrier retained show %s\n", p.argument(key))
			}
			return nil
		}),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "accept the state without asking")
	c.Flags().StringVar(&reason, "reason", "", "the reason, a `text` that the audit log keeps")
	return c
}

func (p stateCommands) stateLock() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "lock STACK",
		Short: "Lock the state",
		Long: `Locks the state of a stack in your name. Until you unlock it, Terrier starts no run,
and no other program gets the lock. The status of the stack shows the holder of the
lock and the time.`,
		Example: `  terrier state lock network --reason "moving subnets"
  terrier state unlock network`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			l, err := s.LockState(ctx, key, reason)
			if err != nil {
				return err
			}
			p.say("The state of %s is locked by %s with the lock %s. To unlock it: terrier state unlock %s\n", key, l.Who, l.ID, p.argument(key))
			return nil
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, a `text` that other users see")
	return c
}

func (p stateCommands) stateUnlock() *cobra.Command {
	return &cobra.Command{
		Use:   "unlock STACK [LOCK-ID]",
		Short: "Unlock the state",
		Long: `Releases your lock on the state of a stack. To release the lock of another holder, pass
its exact ID, and make sure that the holder no longer runs. The lock of an active run
is never released.`,
		Example: `  terrier state unlock network
  terrier state unlock network f2ab6b2e-5d0c-4b5e-9f66-0a6e7c2b6f1d`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(cmd.Context(), args[0])
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
			p.say("Released the lock %s on the state of %s.\n", l.ID, key)
			return nil
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

func (p stateCommands) stateKey() *cobra.Command {
	var reason, dir, records, place string
	c := &cobra.Command{
		Use:   "key [STACK]",
		Short: "Write the keys of an encrypted state to files",
		Long: `Writes the keys of the state of a stack with the annotation terrier.dev/encryption to
files that only their owner can read, one for each key of records, and prints the
variable TF_ENCRYPTION by which OpenTofu reads the state with them. Users with them
read every version of the state. You need the permission to get terraforms/state-key.
The audit log has the reason.

Without a server, give --records-key and --place in place of a stack: the first is a key
of records, 32 bytes in a file; the second is "Secret NAMESPACE/NAME" for a state in a
Secret, "git NAMESPACE/tfstate-WORKSPACE-SUFFIX" for one in git, and "stack KIND.GROUP NAMESPACE/NAME" for one in a backend of its own.`,
		Example: `  export "$(terrier state key network --reason 'the cluster is gone' -d keys)"
  terrier state key --records-key records --place 'Secret apps/tfstate-default-network'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := p.stateKeys(cmd.Context(), args, reason, records, place)
			if err != nil {
				return err
			}
			return p.printKeys(keys, p.path(dir))
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why you need the keys, for the audit log")
	c.Flags().StringVarP(&dir, "directory", "d", ".", "the `directory` for the files")
	c.Flags().StringVar(&records, "records-key", "", "the `file` with a key of records, where there is no server")
	c.Flags().StringVar(&place, "place", "", "the `place` of the state, where there is no server")
	return c
}

// stateKeys asks the server for the keys of a state, or derives one from a key of records.
func (p stateCommands) stateKeys(ctx context.Context, args []string, reason, records, place string) ([]encryption.Key, error) {
	offline := records != "" || place != ""
	switch {
	case offline && (len(args) > 0 || records == "" || place == ""):
		return nil, usage("--records-key and --place go together, and without a stack")
	case !offline && len(args) == 0:
		return nil, usage("name a stack, or give --records-key and --place")
	case offline:
		secret, err := p.readFile(records, encryption.KeyBytes+1)
		if err != nil {
			return nil, err
		}
		if len(secret) != encryption.KeyBytes {
			return nil, fault.New(fault.Invalid, "KeyInvalid", fmt.Errorf("%s does not have %d bytes: decode the entry of the Secret with base64 -d", records, encryption.KeyBytes))
		}
		root, err := encryption.NewRoot(secret)
		if err != nil {
			return nil, err
		}
		k, err := root.Key("", place)
		return []encryption.Key{k}, err
	}
	s, key, err := p.one(ctx, args[0])
	if err != nil {
		return nil, err
	}
	found, err := s.StateKeys(ctx, key, reason)
	if err != nil {
		return nil, err
	}
	var keys []encryption.Key
	for _, k := range found.Keys {
		keys = append(keys, encryption.Key{ID: k.ID, Bytes: k.Key})
	}
	return keys, nil
}

// printKeys writes the files, and prints what names them.
func (p stateCommands) printKeys(keys []encryption.Key, dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return err
	}
	var paths []string
	for _, k := range keys {
		answer, err := encryption.KeyFile(k)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, strings.TrimSuffix("state-key-"+k.ID, "-")+".json")
		if err := p.writePrivately(path, answer); err != nil {
			return err
		}
		paths = append(paths, path)
	}
	if len(paths) == 0 {
		return fault.New(fault.Missing, query.ReasonNoState, fmt.Errorf("there is no key of this state"))
	}
	config, err := encryption.ConfigWithFiles(paths...)
	if err != nil {
		return err
	}
	p.note("Wrote %s. Delete the files once you are done.\n", strings.Join(paths, ", "))
	p.say("%s=%s\n", encryption.Variable, config)
	return nil
}

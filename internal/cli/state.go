package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// stateCommands show and change states.
type stateCommands struct{ *program }

func (p stateCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.state()}
}

func (p stateCommands) state() *cobra.Command {
	return group(&cobra.Command{
		Use:   "state",
		Short: "Show, roll back and lock states",
		Long: `The state records the resources of a stack. Terrier stores it where the engine with
backend "kubernetes" would, and stores earlier versions beside it. The commands read
and write the plain state with the permissions of the kubeconfig user: you need the
permission to read its Secret. The server reads and writes a state in git for you.

docs/state.md describes where everything is stored.`,
		Example: `  terrier state list
  terrier state versions network
  terrier state rollback network 17`,
		GroupID: groupOperate,
	}, p.stateList(), p.stateShow(), p.stateVersions(), p.statePull(), p.statePush(), p.stateRollback(), p.stateAccept(), p.stateLock(), p.stateUnlock(), p.stateKey())
}

func (p stateCommands) stateList() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "list [STACK]",
		Short: "List states, or the resources of one state",
		Long: `Without a stack, the command lists all stacks of the namespace with the serial, the
size and the lock of their states. With a stack, it lists the addresses of the
resources in its state.`,
		Example: `  terrier state list -A
  terrier state list network`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, s, err := p.filter(cmd.Context(), args, "")
			if err != nil {
				return err
			}
			if len(args) == 0 {
				list, err := s.StateInfos(cmd.Context(), filter)
				if err == nil && !p.structured(f, map[string]any{"items": list}) {
					p.printStates(list, filter)
				}
				return err
			}
			view, err := s.StateOf(cmd.Context(), filter.Key(), "", false)
			if err != nil {
				return err
			}
			addresses := []string{}
			for _, r := range view.Resources {
				addresses = append(addresses, r.Title())
			}
			items := map[string]any{"items": addresses}
			if view.Sealed {
				items["sealed"] = true
			}
			if p.structured(f, items) {
				return nil
			}
			if view.Sealed {
				p.note("%s\n", sealedState)
				return nil
			}
			for _, a := range addresses {
				p.say("%s\n", a)
			}
			return nil
		},
	}
	p.allFlag(c)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p stateCommands) printStates(list []query.StateInfo, filter query.Filter) {
	t := namespaced(filter.Namespace == "", "NAMESPACE", "NAME", "SERIAL", "RESOURCES", "SIZE", "STORED", "LOCK")
	for _, i := range list {
		serial, resources, size, lock := "", "", "", ""
		if i.Digest != "" && i.Problem == "" {
			serial, resources, size = fmt.Sprint(i.Serial), counted(i.Resources, i.Sealed), query.Size(i.Bytes)
		}
		if i.Lock != nil {
			lock = i.Lock.Who + " since " + age(p.Now(), i.Lock.Since)
		}
		kept := i.Kept
		switch {
		case i.Problem != "":
			kept = cut(i.Problem, messageWidth)
		case i.Outgrown:
			kept += " (outgrown)"
		}
		t.add(plain(i.Namespace), plain(i.Stack), plain(serial), plain(resources), plain(size), plain(kept), plain(lock))
	}
	p.table(t)
}

// counted is how many resources a state has. Those of an encrypted one cannot be
// counted, which is not the same as none.
func counted(resources int, sealed bool) string {
	if sealed {
		return "encrypted"
	}
	return fmt.Sprint(resources)
}

func (p stateCommands) stateShow() *cobra.Command {
	var (
		f       format
		reveal  bool
		version string
	)
	c := &cobra.Command{
		Use:   "show STACK [ADDRESS]",
		Short: "Show the resources and outputs of a state",
		Long: `Shows the resources and outputs in the state of a stack, or one resource. Secret values
are masked unless --show-secrets is given: the values that the state marks, those that
came from a Secret, and those with a name like password or token.`,
		Example: `  terrier state show network
  terrier state show network 'aws_subnet.a[0]' -o json
  terrier state show network --version 17`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, key, err := p.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			view, err := s.StateOf(cmd.Context(), key, version, reveal)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if view, err = only(view, args[1]); err != nil {
					return err
				}
			}
			if !p.structured(f, view) {
				p.printState(view)
			}
			return nil
		},
	}
	secretsFlag(c, &reveal, "reveal")
	c.Flags().StringVar(&version, "version", "", "the `serial` of an older version")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// sealedState says why an encrypted state shows nothing.
const sealedState = "The state is encrypted. Only the engine can read it, so its resources are not known here."

// secretsFlag adds the flag by which a user asks for secret values, and its name in
// the release before.
func secretsFlag(c *cobra.Command, show *bool, before string) {
	c.Flags().BoolVar(show, "show-secrets", false, "show secret values as well")
	c.Flags().BoolVar(show, before, false, "")
	c.Flags().Lookup(before).Hidden = true
}

// only reduces a state to one address.
func only(v plan.StateView, address string) (plan.StateView, error) {
	var found []plan.StateResource
	for _, r := range v.Resources {
		if r.Address == address {
			found = append(found, r)
		}
	}
	switch {
	case v.Sealed:
		return v, fault.New(fault.Missing, query.ReasonNoState, errors.New("the state is encrypted, and only the engine can read it: its resources are not known here"))
	case found == nil:
		return v, query.NoAddress(address)
	}
	v.Resources, v.Outputs = found, nil
	return v, nil
}

func (p stateCommands) printState(v plan.StateView) {
	if v.Sealed {
		p.say("# %s\n", sealedState)
	}
	if v.Masked != "" {
		p.say("# %s. To show the values: --show-secrets\n", v.Masked)
	}
	for _, r := range v.Resources {
		notes := ""
		if r.Tainted {
			notes += " (tainted)"
		}
		p.say("# %s%s\n", r.Title(), notes)
		for _, name := range sortedKeys(r.Attributes) {
			p.say("    %s = %s\n", name, inline(r.Attributes[name]))
		}
	}
	if len(v.Outputs) > 0 {
		p.say("\nOutputs:\n")
	}
	for _, o := range v.Outputs {
		p.say("    %s = %s\n", o.Name, inline(o.Value))
	}
}

func (p stateCommands) stateVersions() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "versions STACK",
		Short: "List the stored versions of a state",
		Long: `Lists the stored versions of the state of a stack: the newest ones, and the version
before each run that destroyed something. BY is the run that wrote the version, the
user, or "outside" for another program. Below, the command lists the states that a
backend rejected, with their runs.`,
		Example: `  terrier state versions network
  terrier state versions network -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			kept, err := s.StateVersions(ctx, key)
			if err == nil && !p.structured(f, kept) {
				p.printVersions(kept)
			}
			return err
		}),
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p stateCommands) printVersions(kept query.KeptStates) {
	t := &table{head: []string{"SERIAL", "DIGEST", "RESOURCES", "SIZE", "AGE", "BY", "NOTE"}}
	for i := len(kept.Versions) - 1; i >= 0; i-- {
		v := kept.Versions[i]
		var notes []string
		if v.Digest == kept.Head.Digest {
			notes = append(notes, "current")
		}
		if v.Before != "" {
			notes = append(notes, "before "+v.Before)
		}
		if v.Lineage != kept.Versions[len(kept.Versions)-1].Lineage {
			notes = append(notes, "lineage "+v.Lineage)
		}
		digest := strings.TrimPrefix(v.Digest, "sha256:")
		t.add(plain(fmt.Sprint(v.Serial)), plain(digest[:min(12, len(digest))]), plain(counted(v.Resources, v.Sealed)), plain(query.Size(v.Bytes)), plain(age(p.Now(), v.At)), plain(v.By), plain(strings.Join(notes, ", ")))
	}
	if len(kept.Versions) == 0 && len(kept.Rescued) == 0 {
		p.say("No version of the state is stored yet. Nothing was applied.\n")
	}
	if len(kept.Versions) > 0 {
		p.table(t)
	}
	for _, run := range kept.Rescued {
		p.say("A backend rejected the state of the run %s. To download it: terrier state pull STACK --rescued %[1]s\n", run)
	}
}

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// retainedCommands show the retained resources of deleted stacks.
type retainedCommands struct{ *program }

func (p retainedCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.retained()}
}

func (p retainedCommands) retained() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "retained",
		Short: "Show the retained resources of deleted stacks",
		Long: `When a stack is deleted and its resources stay (terrier.dev/deletion: retain, or no
destroyResourcesOnDeletion), or when its object is removed by force, Terrier records
what is retained: the reason, the time, the resources, and the location of the state.
The records expire after 30 days. Terrier also records the resources that an apply or a
destroy forgets (lifecycle { destroy = false }, in a resource or in a removed block):
the address, the type and the ID of each, which an import needs. A state that a user gave
up with "terrier state accept" is recorded with the place where it was. Of a stack that
exists these records do not expire. The records of a namespace that was deleted are for
users with the permission in all namespaces, also if there is a namespace of that name
again. This command lists the records. "terrier retained show"
shows the next steps for one of them.`,
		Example: `  terrier retained -A
  terrier retained show network
  terrier retained forget network`,
		GroupID: groupView,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := p.records(cmd.Context())
			if err != nil {
				return err
			}
			namespace := p.connection.Namespace
			if p.all {
				namespace = ""
			}
			list, err := k.List(cmd.Context(), namespace)
			if err == nil && !p.structured(f, map[string]any{"items": list}) {
				p.printRetained(list)
			}
			return err
		},
	}
	p.allFlag(c)
	formatFlag(c, &f, forJSON, forYAML)
	c.AddCommand(p.retainedShow(), p.retainedState(), p.retainedForget())
	return c
}

// records connects to the server that stores the records.
func (p retainedCommands) records(ctx context.Context) (command.RetainedStacks, error) {
	k, namespace, err := p.connection.Retained(ctx)
	p.connection.Namespace = namespace
	return k, err
}

func (p retainedCommands) printRetained(list []command.Retained) {
	if len(list) == 0 {
		p.say("No deleted stack has retained resources, and no stack has forgotten resources or gave up a state.\n")
		if !p.all {
			p.say("If the namespace was deleted and created again, a user with the permission in all namespaces lists the records of the former one: terrier retained -A\n")
		}
		return
	}
	t := &table{head: []string{"NAMESPACE", "NAME", "AGE", "RESOURCES", "STATE", "WHY"}}
	for _, r := range list {
		n := counted(r.Count(), r.Sealed)
		if !r.Sealed && r.Unknown() {
			n = "unknown"
		}
		t.add(plain(r.Namespace), plain(r.Name), plain(age(p.Now(), r.At)), plain(n), plain(whereRetained(r)), plain(r.Why))
	}
	p.table(t)
}

// whereRetained is the location of the state of a deleted stack.
func whereRetained(r command.Retained) string {
	switch {
	case len(r.GivenUp) > 0 && len(r.Resources) == 0 && r.Secret == "" && !r.Kept:
		return r.GivenIn()
	case len(r.Forgotten) > 0 && len(r.Resources) == 0 && r.Secret == "" && !r.Kept:
		return "not in a state"
	case r.Secret != "":
		return "secret/" + r.Secret
	case r.Kept:
		return "records"
	default:
		return "not stored here"
	}
}

// oneRetained finds a record by name, and by UID if there are
// several of one name.
func (p retainedCommands) oneRetained(ctx context.Context, name, uid string) (command.RetainedStacks, command.Retained, error) {
	k, err := p.records(ctx)
	if err != nil {
		return nil, command.Retained{}, err
	}
	key, err := query.ParseKey(name, p.connection.Namespace)
	if err != nil {
		return nil, command.Retained{}, err
	}
	list, err := k.List(ctx, key.Namespace)
	if err != nil {
		return nil, command.Retained{}, err
	}
	var found []command.Retained
	for _, r := range list {
		if r.Key() == key && (uid == "" || r.UID == uid) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, command.Retained{}, fault.New(fault.Missing, query.ReasonNotRetained, fmt.Errorf("there is no record of a deleted stack %s", key))
	case 1:
		return k, found[0], nil
	default:
		return nil, command.Retained{}, usage("%d deleted stacks have the name %s: select one with --uid (to list the UIDs: terrier retained -n %s -o json)", len(found), key, key.Namespace)
	}
}

func uidFlag(c *cobra.Command, uid *string) {
	c.Flags().StringVar(uid, "uid", "", "the `UID` of the stack, if several had this name")
}

func (p retainedCommands) retainedShow() *cobra.Command {
	var (
		f   format
		uid string
	)
	c := &cobra.Command{
		Use:   "show STACK",
		Short: "Show the retained resources of one stack, and the next steps",
		Example: `  terrier retained show network
  terrier retained show apps/network -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, r, err := p.oneRetained(cmd.Context(), args[0], uid)
			if err == nil && !p.structured(f, r) {
				p.write(p.retainedSheet(r))
			}
			return err
		},
	}
	uidFlag(c, &uid)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p retainedCommands) retainedSheet(r command.Retained) *sheet {
	s := &sheet{colour: p.coloured()}
	s.row("Stack", r.Key().String())
	s.row("UID", r.UID)
	switch {
	case r.Exists && len(r.Forgotten) == 0:
		s.row("Given up", age(p.Now(), r.At)+" ago")
	case r.Exists:
		s.row("Forgotten", age(p.Now(), r.At)+" ago")
	default:
		s.row("Deleted", age(p.Now(), r.At)+" ago")
	}
	s.text("Why", r.Why)
	if r.Former {
		s.row("Namespace", "deleted")
	}
	s.row("State", whereRetained(r))
	if !r.Exists {
		s.row("Expires", r.Until.UTC().Format("2006-01-02"))
	}
	if len(r.Resources) > 0 || len(r.Forgotten)+len(r.GivenUp) == 0 {
		s.heading("Resources in its last state")
		switch {
		case r.Sealed:
			s.line("%s", sealedState)
		case len(r.Resources) == 0:
			s.line("none known")
		}
		for _, address := range r.Resources {
			s.line("%s", address)
		}
	}
	p.forgottenRows(s, r.Forgotten)
	if len(r.GivenUp) > 0 {
		s.heading("States that were given up")
		for _, g := range r.GivenUp {
			s.line("%s", g)
			s.line("  given up %s ago for %s%s", age(p.Now(), g.At), g.Now, reasonGiven(g.Why))
		}
	}
	if r.Untracked != nil {
		heading := "Untracked resources"
		if r.Untracked.Apart {
			heading = "Untracked resources, unless your own backend has them"
		}
		s.heading(heading)
		for _, u := range r.Untracked.Objects {
			s.line("%s  %s", u.Address, existence(u))
		}
	}
	s.heading("Next steps")
	for _, way := range r.Ways {
		s.line("- %s", way) // on one line, so that commands in it can be copied
	}
	return s
}

func reasonGiven(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// forgottenRows list forgotten resources, with what an import of each takes.
func (p retainedCommands) forgottenRows(s *sheet, list []stack.ForgottenResource) {
	if len(list) == 0 {
		return
	}
	s.heading("Forgotten resources")
	for _, f := range list {
		id := "ID not known"
		if f.ID != "" {
			id = "ID " + f.ID
		}
		if f.Unsure {
			id += ", may still be in the state"
		}
		s.line("%s  %s, forgotten by %s %s ago", f.Address, id, f.Run, age(p.Now(), f.At))
	}
}

func (p retainedCommands) retainedState() *cobra.Command {
	var uid string
	c := &cobra.Command{
		Use:   "state STACK",
		Short: "Print the copy of the last state of a deleted stack",
		Long: `Prints the last known state of a deleted stack, with all its secrets, in the format
for "terrier state push". You need the permission to get terraforms/state. The audit
log records the access.`,
		Example: `  terrier retained state network > network.tfstate`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, r, err := p.oneRetained(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			state, err := k.State(cmd.Context(), r.Key(), r.UID)
			if err != nil {
				return err
			}
			defer state.Close()
			_, err = io.Copy(p.Stdout, state)
			return err
		},
	}
	uidFlag(c, &uid)
	return c
}

func (p retainedCommands) retainedForget() *cobra.Command {
	var (
		uid string
		yes bool
	)
	c := &cobra.Command{
		Use:   "forget STACK",
		Short: "Delete the record of retained resources",
		Long: `Deletes everything that the records contain about a deleted stack, including the copy
of its last state. Its resources stay, and so does the Secret with its state. You need
the permission to delete terraforms. The audit log records the deletion.`,
		Example: `  terrier retained forget network
  terrier retained forget apps/network --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, r, err := p.oneRetained(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			what := query.Count(r.Count(), "retained resource")
			if r.Sealed {
				what = "an unknown number of retained resources (its state is encrypted)"
			}
			since := "was deleted " + age(p.Now(), r.At) + " ago"
			if r.Exists {
				since = "still exists"
			}
			agreed, err := p.agreed(yes, "Delete the record of %s, which has %s and %s?", r.Key(), what, since)
			if err != nil {
				return err
			}
			if !agreed {
				p.say("Nothing was deleted.\n")
				return nil
			}
			if err := k.Forget(cmd.Context(), r.Key(), r.UID); err != nil {
				return err
			}
			p.say("Deleted the record of %s.\n", r.Key())
			if r.Secret != "" {
				p.say("The Secret %s still contains its state. If you no longer need it: kubectl delete secret %s -n %s\n", r.Secret, r.Secret, r.Namespace)
			}
			return nil
		},
	}
	uidFlag(c, &uid)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

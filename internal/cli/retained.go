package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p *program) retained() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "retained",
		Short: "Show what stacks left that are gone",
		Long: `When a stack is deleted and what it built stays (terrier.dev/deletion: retain, or no
destroyResourcesOnDeletion), or when its object is removed by force, it is written
down what is left: why, since when, the resources, and where the state is. These
records are kept for 30 days. This lists them; show says what can be done about
one of them.`,
		Example: `  terrier retained -A
  terrier retained show network
  terrier retained forget network`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := p.leftovers(cmd.Context())
			if err != nil {
				return err
			}
			namespace := p.connection.Namespace
			if p.all {
				namespace = ""
			}
			list, err := k.List(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			return p.printRetained(list, f)
		},
	}
	p.allFlag(c)
	formatFlag(c, &f, forJSON, forYAML)
	c.AddCommand(p.retainedShow(), p.retainedState(), p.retainedForget())
	return c
}

// leftovers connects to the server that keeps the records.
func (p *program) leftovers(ctx context.Context) (command.RetainedStacks, error) {
	k, namespace, err := client.ConnectRetained(ctx, p.connection)
	p.connection.Namespace = namespace
	return k, err
}

func (p *program) printRetained(list []command.Retained, f format) error {
	if done, err := p.structured(f, map[string]any{"items": list}); done {
		return err
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(p.Stdout, "No record says that a stack left anything.")
		return err
	}
	t := &table{head: []string{"NAMESPACE", "NAME", "AGE", "RESOURCES", "STATE", "WHY"}}
	for _, r := range list {
		t.add(plain(r.Namespace), plain(r.Name), plain(age(p.Now(), r.At)), plain(fmt.Sprint(len(r.Resources))), plain(whereRetained(r)), plain(r.Why))
	}
	return t.print(p.Stdout, p.coloured())
}

// whereRetained says where the state of a stack is that is gone.
func whereRetained(r command.Retained) string {
	switch {
	case r.Secret != "":
		return "secret/" + r.Secret
	case r.Kept:
		return "records"
	default:
		return "not kept here"
	}
}

// oneRetained finds the record that is meant: by name, and by UID where there are
// several of one name.
func (p *program) oneRetained(ctx context.Context, name, uid string) (command.RetainedStacks, command.Retained, error) {
	k, err := p.leftovers(ctx)
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
		return nil, command.Retained{}, fault.New(fault.Missing, query.ReasonNotRetained, fmt.Errorf("no record says that a stack %s left anything", key))
	case 1:
		return k, found[0], nil
	default:
		return nil, command.Retained{}, usage("%d stacks of the name %s left something: say which with --uid (terrier retained -n %s -o json)", len(found), key, key.Namespace)
	}
}

func uidFlag(c *cobra.Command, uid *string) {
	c.Flags().StringVar(uid, "uid", "", "the `UID` of the stack, if several had that name")
}

func (p *program) retainedShow() *cobra.Command {
	var (
		f   format
		uid string
	)
	c := &cobra.Command{
		Use:   "show STACK",
		Short: "Show what one stack left, and what can be done about it",
		Example: `  terrier retained show network
  terrier retained show apps/network -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, r, err := p.oneRetained(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			if done, err := p.structured(f, r); done {
				return err
			}
			return p.describeRetained(r)
		},
	}
	uidFlag(c, &uid)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p *program) describeRetained(r command.Retained) error {
	s := &sheet{colour: p.coloured()}
	s.row("Stack", r.Key().String())
	s.row("UID", r.UID)
	s.row("Gone since", age(p.Now(), r.At))
	s.text("Why", r.Why)
	s.row("State", whereRetained(r))
	s.row("Kept until", r.Until.UTC().Format("2006-01-02"))
	s.heading("Resources in its last state")
	if len(r.Resources) == 0 {
		s.line("none that are known")
	}
	for _, address := range r.Resources {
		s.line("%s", clean(address))
	}
	if r.Untracked != nil {
		heading := "In no state"
		if r.Untracked.Apart {
			heading = "In no state, or in a backend of your own"
		}
		s.heading(heading)
		for _, u := range r.Untracked.Objects {
			s.line("%s  %s", clean(u.Address), clean(existence(u)))
		}
	}
	s.heading("What can be done")
	for _, way := range r.Ways {
		s.line("- %s", clean(way)) // on one line: commands in it are there to be copied
	}
	_, err := io.WriteString(p.Stdout, s.b.String())
	return err
}

func (p *program) retainedState() *cobra.Command {
	var uid string
	c := &cobra.Command{
		Use:   "state STACK",
		Short: "Print the copy of the last state of a stack that is gone",
		Long: `Prints the last state that was known of a stack that is gone, with all that is
secret in it, as terrier state push takes it. It needs the right to get
terraforms/state, and it is recorded in the journal.`,
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

func (p *program) retainedForget() *cobra.Command {
	var (
		uid string
		yes bool
	)
	c := &cobra.Command{
		Use:   "forget STACK",
		Short: "Drop the record of what a stack left",
		Long: `Drops all that the records hold of a stack that is gone, the copy of its last state
included. What it built stays where it is, and so does the Secret with its state.
It needs the right to delete terraforms, and it is recorded in the journal.`,
		Example: `  terrier retained forget network
  terrier retained forget apps/network --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, r, err := p.oneRetained(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			agreed := yes
			if !agreed {
				question := fmt.Sprintf("Forget %s, which left %s %s ago?", clean(r.Key().String()), query.Count(len(r.Resources), "resource"), age(p.Now(), r.At))
				if agreed, err = p.confirm(question); err != nil {
					return err
				}
			}
			if !agreed {
				_, err := fmt.Fprintln(p.Stdout, "Nothing was forgotten.")
				return err
			}
			if err := k.Forget(cmd.Context(), r.Key(), r.UID); err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "The record of %s is gone.\n", clean(r.Key().String()))
			if r.Secret != "" && err == nil {
				_, err = fmt.Fprintf(p.Stdout, "Its state was left in the Secret %s. If nothing needs it: kubectl delete secret %s -n %s\n", clean(r.Secret), clean(r.Secret), clean(r.Namespace))
			}
			return err
		},
	}
	uidFlag(c, &uid)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// stackCommands list and explain stacks.
type stackCommands struct{ *program }

func (p stackCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.get(), p.describe(), p.explain()}
}

func (p stackCommands) get() *cobra.Command {
	var (
		f        format
		selector string
		watch    bool
	)
	c := &cobra.Command{
		Use:     "get [STACK]",
		Aliases: []string{"ls", "list"},
		Short:   "List stacks and their status",
		Long: `Lists stacks with their readiness, their phase, the pending plan, and the revision
that was applied last. The message begins with the number of check blocks of the module
that fail, if any does. Where there are stacks of several kinds, the list has the kind
of each, and a name that several kinds have is given with it: KIND/NAME.

"terrier explain STACK" and docs/states.md explain the phases.`,
		Example: `  terrier get -A
  terrier get -l team=net -o wide
  terrier get network --watch
  terrier get -A -o json | jq -r '.items[] | select(.ready == "False") | .name'`,
		GroupID:           groupView,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, s, err := p.filter(cmd.Context(), args, selector)
			if err != nil {
				return err
			}
			if watch {
				return p.watch(cmd, s, filter, f)
			}
			if len(args) == 1 {
				st, err := s.Get(cmd.Context(), filter.Key())
				if err == nil && !p.structured(f, st) {
					p.list([]query.Stack{st}, f, filter)
				}
				return err
			}
			list, err := s.List(cmd.Context(), filter)
			if err == nil && !p.structured(f, map[string]any{"items": list}) {
				p.list(list, f, filter)
			}
			return err
		},
	}
	p.allFlag(c)
	c.Flags().StringVarP(&selector, "selector", "l", "", "only stacks with these `labels`")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print each stack again when it changes")
	formatFlag(c, &f, forWide, forJSON, forYAML, forName)
	return c
}

// list prints stacks for people, or their names.
func (p stackCommands) list(list []query.Stack, f format, filter query.Filter) {
	if f == forName {
		for _, s := range list {
			p.say("%s\n", stackName(s, filter))
		}
		return
	}
	if len(list) == 0 {
		where := "in the namespace " + filter.Namespace
		if filter.Namespace == "" {
			where = "in any namespace"
		}
		if filter.Selector != "" {
			p.note("No stack %s has the labels %s.\n", where, filter.Selector)
		} else {
			p.note("No stacks %s.\n", where)
		}
		return
	}
	v := p.listView(f, filter)
	v.kinds = slices.ContainsFunc(list, func(s query.Stack) bool { return s.Kind != "" })
	t := v.table()
	for _, s := range list {
		t.add(v.row(s)...)
	}
	p.table(t)
}

func stackName(s query.Stack, f query.Filter) string {
	if f.Namespace == "" {
		return s.Key().String()
	}
	return s.Key().Argument()
}

// watch prints all stacks, and then each one that changes.
func (p stackCommands) watch(cmd *cobra.Command, s command.StackAPI, filter query.Filter, f format) error {
	v := p.listView(f, filter)
	v.kinds = len(v.known.All()) > 1
	t := v.table()
	for change, err := range s.Watch(cmd.Context(), filter) {
		if err != nil {
			return err
		}
		if change.Gone {
			change.Phase = "Deleted"
		}
		switch {
		case p.structured(f, change.Stack):
		case f == forName:
			p.say("%s\n", stackName(change.Stack, filter))
		default:
			v.now = p.Now()
			t.add(v.row(change.Stack)...)
			p.table(t)
		}
		if p.failed != nil {
			return nil
		}
	}
	return cmd.Context().Err()
}

package cli

import (
	"fmt"
	"unicode/utf8"

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
that was applied last.

"terrier explain STACK" and docs/states.md explain the phases.`,
		Example: `  terrier get -A
  terrier get -l team=net -o wide
  terrier get network --watch
  terrier get -A -o json | jq -r '.items[] | select(.ready == "False") | .name'`,
		GroupID:           groupView,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, s, err := p.filter(args, selector)
			if err != nil {
				return err
			}
			if watch {
				return p.watch(cmd, s, filter, f)
			}
			if len(args) == 1 {
				st, err := s.Get(cmd.Context(), query.Key{Namespace: filter.Namespace, Name: filter.Name})
				if err != nil {
					return err
				}
				if done, err := p.structured(f, st); done {
					return err
				}
				return p.list([]query.Stack{st}, f, filter)
			}
			list, err := s.List(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return p.list(list, f, filter)
		},
	}
	p.allFlag(c)
	c.Flags().StringVarP(&selector, "selector", "l", "", "only stacks with these `labels`")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print each stack again when it changes")
	formatFlag(c, &f, forWide, forJSON, forYAML, forName)
	return c
}

// list prints stacks in the format f.
func (p stackCommands) list(list []query.Stack, f format, filter query.Filter) error {
	if done, err := p.structured(f, map[string]any{"items": list}); done {
		return err
	}
	if f == forName {
		for _, s := range list {
			if _, err := fmt.Fprintln(p.Stdout, stackName(s, filter)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		where := "in the namespace " + filter.Namespace
		if filter.Namespace == "" {
			where = "in any namespace"
		}
		text := "No stacks " + where
		if filter.Selector != "" {
			text = "No stack " + where + " has the labels " + filter.Selector
		}
		_, err := fmt.Fprintf(p.Stderr, "%s.\n", clean(text))
		return err
	}
	v := p.listView(f, filter)
	t := v.table()
	for _, s := range list {
		t.add(v.row(s)...)
	}
	return t.print(p.Stdout, p.coloured())
}

func stackName(s query.Stack, f query.Filter) string {
	if f.Namespace == "" {
		return s.Namespace + "/" + s.Name
	}
	return s.Name
}

func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// watch prints all stacks, and then each one that changes.
func (p stackCommands) watch(cmd *cobra.Command, s command.StackAPI, filter query.Filter, f format) error {
	t := p.listView(f, filter).table()
	for change, err := range s.Watch(cmd.Context(), filter) {
		if err != nil {
			return err
		}
		if change.Gone {
			change.Phase = "Deleted"
		}
		if done, err := p.structured(f, change.Stack); done {
			if err != nil {
				return err
			}
			continue
		}
		if f == forName {
			if _, err := fmt.Fprintln(p.Stdout, stackName(change.Stack, filter)); err != nil {
				return err
			}
			continue
		}
		t.add(p.listView(f, filter).row(change.Stack)...)
		if err := t.print(p.Stdout, p.coloured()); err != nil {
			return err
		}
	}
	return cmd.Context().Err()
}

package cli

import (
	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

func (p stackCommands) explain() *cobra.Command {
	var (
		f     format
		file  string
		rules bool
	)
	c := &cobra.Command{
		Use:   "explain {STACK | -f FILE}",
		Short: "Explain the status of a stack, and the next step",
		Long: `Shows the rule that decides about a stack, since when, what the stack is waiting for,
its next check, and the next step for you. Terrier tries the rules in order, and the
first rule that applies decides. --rules lists all of them.

With -f the command needs no cluster. It says what Terrier would do with the stacks in a
manifest, as if all objects that they refer to existed. If the manifest has a status,
it starts from this status.`,
		Example: `  terrier explain network
  terrier explain network --rules
  terrier explain -f network.yaml
  kubectl get tf network -o yaml | terrier explain -f -`,
		GroupID:           groupView,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file != "") == (len(args) == 1) {
				return usage("name a stack, or a manifest with -f")
			}
			list, err := p.explanations(cmd, args, file)
			if err != nil {
				return err
			}
			if p.structured(f, map[string]any{"items": list}) {
				return nil
			}
			for i, e := range list {
				if i > 0 {
					p.say("\n")
				}
				p.write(p.explanation(e, rules))
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "explain the stacks in this `file`; - is standard input")
	c.Flags().BoolVar(&rules, "rules", false, "list all rules as well")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p stackCommands) explanations(cmd *cobra.Command, args []string, file string) ([]query.Explanation, error) {
	if file == "" {
		s, key, err := p.one(cmd.Context(), args[0])
		if err != nil {
			return nil, err
		}
		e, err := s.Explain(cmd.Context(), key)
		return []query.Explanation{e}, err
	}
	content, err := p.readFile(file, manifestBytes)
	if err != nil {
		return nil, err
	}
	return query.ExplainManifest(content, p.connection.StackKinds(), p.Now())
}

func (p stackCommands) explanation(e query.Explanation, rules bool) *sheet {
	s := &sheet{colour: p.coloured()}
	name := e.Stack.Name
	if e.Stack.Namespace != "" {
		name = e.Stack.Key().String()
	}
	s.row("Stack", name)
	switch {
	case !e.Assumed:
		p.status(s, e.Stack, e.Means)
	case e.Stack.Stalled:
		s.text("Message", e.Stack.Message)
		s.text("Means", e.Means.Means)
		s.text("Next step", e.Means.Do)
	}
	if e.Stack.Phase == string(stack.LockedByOther) && e.Stack.Lock != nil {
		s.row("Lock", e.Stack.Lock.ID)
	}
	findings(s, e.Stack.Verdict)
	if len(e.Facts) > 0 {
		s.heading("Facts")
		for _, f := range e.Facts {
			s.line("- %s", f)
		}
	}
	if len(e.Story) > 0 {
		s.heading("What Terrier would do, if all that the manifest names exists and each run succeeds")
		for i, step := range e.Story {
			if step.Given != "" {
				s.line("   (%s)", step.Given)
			}
			s.line("%d. %s: %s", i+1, step.Does, paint(s.colour, faint, step.Rule))
		}
	}
	if rules {
		s.heading("Rules, in order")
		for _, r := range e.Rules {
			mark, colour := "  ", ""
			switch {
			case r.Fires:
				mark, colour = "→ ", bold
			case r.Tried:
				mark, colour = "· ", faint
			}
			s.line("%s%s", mark, paint(s.colour, colour, r.Rule+": "+r.Does))
		}
	}
	return s
}

package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/stack"
)

// reference is docs/cli.md: every command of this package with its flags, from
// the commands themselves.
func reference() string {
	p := newProgram(Env{})
	root := p.root(nil)
	var b strings.Builder
	b.WriteString("# The command line\n\n<!-- Generated from the commands by go test ./internal/cli -update. -->\n\n")
	fmt.Fprintf(&b, "%s\n\n", root.Long)
	b.WriteString("| command | |\n| --- | --- |\n")
	commands := slices.DeleteFunc(root.Commands(), func(c *cobra.Command) bool { return !c.IsAvailableCommand() || c.Name() == "help" })
	for _, c := range commands {
		fmt.Fprintf(&b, "| [`terrier %s`](#terrier-%s) | %s |\n", c.Name(), c.Name(), c.Short)
	}
	b.WriteString("\n`terrier up` starts a control plane of its own; `terrier up --help` lists its flags. [`terrier controller`](controller.md) runs the same controllers for an existing cluster.\n")
	b.WriteString("\n## Flags of every command\n\n")
	flagTable(&b, root.PersistentFlags())
	b.WriteString("\n## Exit codes\n\n| code | when |\n| --- | --- |\n| 0 | success |\n")
	for _, k := range []fault.Kind{fault.Broken, fault.Invalid, fault.Denied, fault.Missing, fault.Conflict, fault.Later} {
		fmt.Fprintf(&b, "| %d | %s |\n", k.Meaning().Exit, exitText(k))
	}
	fmt.Fprintf(&b, "| %d | the command was interrupted |\n", interrupted)
	for _, c := range commands {
		commandPage(&b, c)
	}
	return b.String()
}

func exitText(k fault.Kind) string {
	switch k {
	case fault.Invalid:
		return "the input is invalid: correct it"
	case fault.Denied:
		return "permission denied"
	case fault.Missing:
		return "an object was not found"
	case fault.Conflict:
		return "an object changed in the meantime: try again"
	case fault.Later:
		return "not possible at the moment: try again later"
	default:
		return "any other error"
	}
}

func commandPage(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```\n%s\n```\n", c.CommandPath(), c.Short, c.UseLine())
	if c.Name() == "completion" {
		b.WriteString("\nPrints a script for bash, fish, powershell or zsh; `terrier completion SHELL --help` explains how to load it.\n")
		return
	}
	if c.Long != "" {
		fmt.Fprintf(b, "\n%s\n", c.Long)
	}
	if len(c.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso: `%s`.\n", strings.Join(c.Aliases, "`, `"))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", unindent(c.Example))
	}
	if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		b.WriteByte('\n')
		flagTable(b, flags)
	}
	for _, sub := range c.Commands() {
		commandPage(b, sub)
	}
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func flagTable(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | |\n| --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + strings.ToUpper(kind)
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" {
			text += " (default " + d + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.ReplaceAll(text, "|", "\\|"))
	})
}

// states is docs/states.md: the rules in their order and the meaning of each
// reason, from the rules themselves.
func states() string {
	var b strings.Builder
	b.WriteString(`# Status of a stack

<!-- Generated from the rules by go test ./internal/cli -update. -->

A list of rules decides the next step for a stack. Terrier tries the rules in this order, and the first rule that applies
decides. The rule is in ` + "`status.terrier.rule`" + `, and its reason in ` + "`status.terrier.phase`" + `. ` + "`terrier explain`" + ` shows both for one stack.

## The rules

| | rule | action | phase | why |
| --- | --- | --- | --- | --- |
`)
	all := kinds.All()
	first, second := wordsOf(all, all.All()[0]), wordsOf(all, all.All()[1])
	for i, r := range meaning.Rules() {
		var phases []string
		for _, reason := range r.Reasons {
			phases = append(phases, phaseLink(reason))
		}
		if phases == nil {
			phases = []string{"unchanged"}
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s |\n", i+1, r.Rule, r.Does, strings.Join(phases, ", "), first.In(r.Why))
	}
	b.WriteString("\n## The phases\n\n| phase | meaning | next step |\n| --- | --- | --- |\n")
	for _, reason := range phases() {
		s := meaning.Of(reason, first)
		do := s.Do
		if do == "" {
			do = "Nothing: Terrier continues automatically."
			if reason.Settled() {
				do = "Nothing."
			}
		}
		fmt.Fprintf(&b, "| <a id=\"%s\"></a>`%s` | %s | %s |\n", strings.ToLower(string(reason)), reason, s.Means, do)
	}
	b.WriteString("\n## Fields\n\nThis page names the fields of stacks of `infra.contrib.fluxcd.io`. `terrier explain` and the pages name those of the kind of each stack.\n\n| `infra.contrib.fluxcd.io` | `alustan.io` |\n| --- | --- |\n")
	is, other := reflect.ValueOf(first), reflect.ValueOf(second)
	for f := range is.Type().Fields() {
		if f.Name != "Argument" {
			fmt.Fprintf(&b, "| %s | %s |\n", is.FieldByIndex(f.Index), other.FieldByIndex(f.Index))
		}
	}
	return b.String()
}

// wordsOf are the words of a kind.
func wordsOf(all query.Kinds, d dialect.Dialect) stack.Words {
	o := d.New()
	o.SetName("NAME")
	o.SetNamespace("NAMESPACE")
	return query.ReadObject(all, o).Spec.Words
}

func phaseLink(r stack.Reason) string {
	return fmt.Sprintf("[%s](#%s)", r, strings.ToLower(string(r)))
}

// phases are all reasons: first the one of queued runs, which every rule may have,
// then those of the rules in their order.
func phases() []stack.Reason {
	out := []stack.Reason{stack.Queued}
	for _, r := range meaning.Rules() {
		for _, reason := range r.Reasons {
			if !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	used "github.com/terrier-iac/terrier/internal/plan/usage" // usage is an error of this package
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

func (p moduleCommands) uses() *cobra.Command {
	c := usesCommand(p.program, func(q *usedby.Question, text string) { q.Module = text })
	c.Use = "uses ADDRESS"
	c.Short = "List the stacks that use a module, and in which version"
	c.Long = `Lists the stacks that call a module, also from another module, with the version that the
last init installed and since when. ADDRESS is NAMESPACE/NAME/SYSTEM in any registry, the
same after the host of one registry, or the URL of a repository or an archive. The list
has the stacks that you may list.`
	c.Example = `  terrier module uses net/network/aws
  terrier module uses registry.example.com/net/network/aws --version "< 2.0"
  terrier module uses https://git.example.com/team/modules.git -o json`
	return c
}

func (p providerCommands) uses() *cobra.Command {
	c := usesCommand(p.program, func(q *usedby.Question, text string) { q.Provider = text })
	c.Use = "uses SOURCE"
	c.Short = "List the stacks that use a provider, and in which version"
	c.Long = `Lists the stacks that use a provider, with the version of their dependency lock file and
since when. SOURCE is NAMESPACE/TYPE in any registry, or HOST/NAMESPACE/TYPE. The list has
the stacks that you may list.`
	c.Example = `  terrier provider uses hashicorp/aws
  terrier provider uses registry.opentofu.org/hashicorp/aws --version "< 6.0"`
	return c
}

// usesCommand is a command about the stacks that use something.
func usesCommand(p *program, ask func(*usedby.Question, string)) *cobra.Command {
	var (
		q usedby.Question
		f format
	)
	c := &cobra.Command{
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ask(&q, args[0])
			q.Namespace = p.connection.Namespace
			to, err := p.connection.UsedBy(cmd.Context())
			if err != nil {
				return err
			}
			a, err := to.Ask(cmd.Context(), access.Scope{}, q)
			if err == nil && !p.structured(f, a) {
				p.usedBy(a, q)
			}
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&q.Versions, "version", "", "only versions in this `range`, for instance \"< 2.0\" or \"~> 1.2\"; or a git ref")
	flags.IntVar(&q.Limit, "limit", 100, "how many uses, at most 1000")
	flags.IntVar(&q.Offset, "offset", 0, "how many uses to skip, to continue a list")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p *program) usedBy(a usedby.Answer, q usedby.Question) {
	t := &table{head: []string{"STACK", "VERSION", "CONSTRAINT", "ADDRESS", "CALLS", "SINCE"}}
	for _, u := range a.Items {
		at := u.Address
		if u.Directory != "" {
			at += "//" + u.Directory
		}
		t.add(plain(u.Key().String()), plain(shortVersion(u.Version, u.Commit)), plain(u.Constraint), plain(cut(at, 80)), plain(cut(strings.Join(u.Calls, " "), 60)), plain(age(p.Now(), u.Since)))
	}
	if len(a.Items) > 0 {
		p.table(t)
		p.say("\n")
	}
	p.say("%s\n", usesText(a))
	p.unsure(a)
	if shown := q.Offset + len(a.Items); shown < a.Total && len(a.Items) > 0 {
		p.note("To list more, add: --offset %d\n", shown)
	}
}

// unsure says what an answer does not know.
func (p *program) unsure(a usedby.Answer) {
	if a.Unread > 0 {
		p.note("The list is not complete: Terrier is still reading the records of %s.\n", query.Count(a.Unread, "stack"))
	}
	if a.Unknown == 0 {
		return
	}
	p.note("Of %s it is not known yet: the next run that initialises the directory finds out.", query.Count(a.Unknown, "stack"))
	if len(a.UnknownStacks) > 0 {
		first := a.UnknownStacks[0]
		p.note(" To start one: terrier replan %s -n %s", first.Argument(), first.Namespace)
	}
	p.note("\n")
}

// usesText counts the stacks, by version.
func usesText(a usedby.Answer) string {
	if a.Total == 0 {
		return "No stack that you may list uses it."
	}
	var parts []string
	for _, v := range a.Versions {
		name := v.Version
		if name == "" {
			name = "without a version"
		}
		parts = append(parts, fmt.Sprintf("%s: %d", name, v.Stacks))
	}
	return fmt.Sprintf("%s. Of all versions: %s", query.Count(a.Stacks, "stack"), strings.Join(parts, ", "))
}

// shortVersion is a version, or the commit of a repository.
func shortVersion(version, commit string) string {
	if commit == "" {
		return version
	}
	short := strings.TrimPrefix(commit, "sha256:")
	short = short[:min(len(short), 12)]
	return strings.TrimSpace(version + " (" + short + ")")
}

// describedUses bounds the wait for a server that may be away: the rest of a description
// comes from the cluster.
const describedUses = 5 * time.Second

// described is a description with what only the records know.
type described struct {
	query.Detail
	Uses *used.Record `json:"uses,omitempty"`

	unseen string // why the uses are not shown
}

func describedStack(ctx context.Context, s command.StackAPI, key query.Key) (described, error) {
	d, err := s.Describe(ctx, key)
	if err != nil {
		return described{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, describedUses)
	defer cancel()
	out := described{Detail: d}
	u, err := s.Uses(ctx, key)
	switch {
	case err == nil:
		out.Uses = &u
	case errors.Is(err, context.DeadlineExceeded):
		out.unseen = "the server did not answer in time"
	case fault.Reason(err, "") != query.ReasonNoUses:
		out.unseen = err.Error()
	}
	return out, nil
}

// uses lays out the modules and providers of a stack.
func (p stackCommands) uses(s *sheet, d described) {
	if d.unseen != "" {
		s.heading("Modules and providers")
		s.line("not shown: %s", d.unseen)
		return
	}
	if d.Uses == nil || len(d.Uses.Modules)+len(d.Uses.Providers)+len(d.Uses.Problems) == 0 {
		return
	}
	s.heading("Modules and providers")
	for _, m := range d.Uses.Modules {
		s.line("%s", clean(moduleText(m)))
	}
	for _, v := range d.Uses.Providers {
		s.line("%s", clean(strings.TrimSpace("provider "+v.Source+" "+v.Version)))
	}
	for _, problem := range d.Uses.Problems {
		s.line("%s", clean(problem))
	}
}

func moduleText(m used.Module) string {
	at := m.Address
	switch {
	case m.Kind == used.Local:
		at = "in " + m.Directory
	case at == "":
		at = m.Declared
	case m.Directory != "":
		at += "//" + m.Directory
	}
	return strings.TrimSpace(m.Path + ": " + at + " " + shortVersion(m.Version, m.Commit))
}

// usersNamed is how many uses of a version a command about it lists.
const usersNamed = 20

// retraction is a retraction of a version of a module or a provider, as a user asks for it.
type retraction struct {
	reason string
	yes    bool
}

func (r *retraction) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.reason, "reason", "", "why the version is withdrawn, and which one to use instead; users read it")
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "retract a version that stacks use without asking")
}

func (r retraction) check() error {
	if strings.TrimSpace(r.reason) == "" {
		return usage("--reason is missing: users of the version read it")
	}
	return nil
}

// users are the stacks that use a version, as far as the server knows them.
type users struct {
	usedby.Answer
	unseen string // why they are not known
	doubt  bool   // there may be some nevertheless
}

// matter reports whether a retraction may stop stacks.
func (u users) matter() bool { return u.Total > 0 || u.Unknown > 0 || u.Unread > 0 || u.doubt }

// usersOf asks which stacks use a version. A registry alone knows of no stacks.
func (p *program) usersOf(ctx context.Context, q usedby.Question) (users, error) {
	q.Limit = usersNamed
	to, err := p.connection.UsedBy(ctx)
	if err != nil {
		return users{}, err
	}
	a, err := to.Ask(ctx, access.Scope{}, q)
	switch {
	case err == nil:
		return users{Answer: a}, nil
	case fault.Reason(err, "") == client.ReasonRegistryAlone:
		return users{unseen: "a registry alone has no stacks"}, nil
	default:
		return users{unseen: err.Error(), doubt: true}, nil // a bad version must not stay because of it
	}
}

// retract withdraws a version. The user learns first which stacks use it: their next init
// fails if they name exactly this version.
func (p *program) retract(ctx context.Context, r retraction, what fmt.Stringer, v address.Version, q usedby.Question, do func() error) error {
	q.Versions = string(v)
	u, err := p.usersOf(ctx, q)
	if err != nil {
		return err
	}
	p.announceUsers(u)
	if u.matter() {
		if agreed, err := p.agreed(r.yes, "Retract %s %s?", what, v); !agreed {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	p.say("Retracted %s %s. %s\n", what, v, u.text())
	return nil
}

// announceUsers lists the stacks before the version is retracted, for a user who is asked.
func (p *program) announceUsers(u users) {
	if u.unseen != "" {
		p.note("Which stacks use it is not known: %s.\n", u.unseen)
		return
	}
	for _, use := range u.Items {
		p.note("  %s uses it in %s, first installed %s\n", use.Key(), clean(cut(strings.Join(use.Calls, " "), 60)), age(p.Now(), use.Since)+" ago")
	}
	if more := u.Total - len(u.Items); more > 0 {
		p.note("  and %s\n", query.Count(more, "more use"))
	}
	p.unsure(u.Answer)
}

// text says after a retraction what becomes of the stacks.
func (u users) text() string {
	if u.unseen != "" {
		return "Which stacks use it is not known"
	}
	var parts []string
	switch {
	case u.Stacks == 1:
		parts = append(parts, "1 stack uses it: its next init chooses another version, or fails if it names this one")
	case u.Stacks > 1:
		parts = append(parts, fmt.Sprintf("%d stacks use it: their next init chooses another version, or fails if they name this one", u.Stacks))
	default:
		parts = append(parts, "No stack that you may list is known to use it")
	}
	if n := u.Unknown + u.Unread; n > 0 {
		parts = append(parts, "Of "+query.Count(n, "stack")+" it is not known")
	}
	return strings.Join(parts, ". ")
}

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

func shortCommit(commit string) string { return fmt.Sprintf("%.12s", commit) }

func (p moduleCommands) repositories() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "repositories [NAMESPACE/NAME]",
		Short: "List the git repositories whose tags become versions of modules",
		Long: `Lists the git repositories whose tags become versions of modules, with their last and next
check, problems, and how many versions they have. With the name of a repository it shows
that one, with all problems, and the tags of which no version was made and why.

A repository is registered by annotations of a GitRepository, or in the file of
--repositories of a registry that runs alone: docs/registry-tags.md.`,
		Example: `  terrier module repositories
  terrier module repositories network/vpc
  terrier module repositories -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			to, _, err := p.connection.Registry(cmd.Context())
			if err != nil {
				return err
			}
			all, err := to.Repositories(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if !p.structured(f, map[string]any{"items": all}) {
					p.moduleRepositories(all)
				}
				return nil
			}
			for _, r := range all {
				if r.Namespace+"/"+r.Name != args[0] {
					continue
				}
				if !p.structured(f, r) {
					p.moduleRepository(r)
				}
				return nil
			}
			return fault.New(fault.Missing, "RepositoryMissing", fmt.Errorf("no repository %s is registered in a namespace in which you may read: list them with terrier module repositories", args[0]))
		},
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p moduleCommands) moduleRepositories(all []client.ModuleRepository) {
	if len(all) == 0 {
		p.say("No git repository is registered in a namespace in which you may read.\n")
		return
	}
	t := &table{head: []string{"REPOSITORY", "MODULE", "VERSIONS", "NEWEST", "CHECKED", "NEXT", "STATUS"}}
	for _, r := range all {
		status, colour := repositoryStatus(r)
		t.add(plain(r.Namespace+"/"+r.Name), plain(r.Module), plain(fmt.Sprint(r.Versions)), plain(newestOf(r)), plain(p.ago(r.Checked)), plain(p.until(r)), cell{text: status, colour: colour})
	}
	p.table(t)
}

func (p moduleCommands) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(p.Now(), t) + " ago"
}

// until is the time to the next check.
func (p moduleCommands) until(r client.ModuleRepository) string {
	switch d := r.Next.Sub(p.Now()); {
	case r.Suspended:
		return ""
	case d > 0:
		return "in " + span(d)
	default:
		return "now"
	}
}

// repositoryStatus is one phrase about a repository.
func repositoryStatus(r client.ModuleRepository) (text string, colour string) {
	switch {
	case r.Error != "":
		return "failing: " + ends(r.Error, 100), red
	case len(r.Problems) > 0:
		return query.Count(r.Contradictions(), "problem") + ": " + ends(r.Problems[0].Text, 100), red
	case r.Suspended:
		return "suspended", yellow
	case r.Pending > 0:
		return query.Count(r.Pending, "tag") + " to go", ""
	case r.Checked.IsZero():
		return "not checked yet", ""
	default:
		return "ok", ""
	}
}

// newestOf is the newest version of a repository with one module. Those of several modules
// cannot be compared.
func newestOf(r client.ModuleRepository) string {
	if r.Named > 1 {
		return "of " + query.Count(r.Named, "module")
	}
	_, version, _ := strings.Cut(r.Newest, " ")
	return version
}

func (p moduleCommands) moduleRepository(r client.ModuleRepository) {
	p.say("%s\n", clean(r.Namespace+"/"+r.Name))
	line := func(name, text string) {
		if text != "" {
			p.say("  %-10s %s\n", name, clean(text))
		}
	}
	line("url", r.URL)
	line("module", r.Module)
	line("tags", r.Tags)
	line("directory", r.Directory)
	line("webhook", r.Webhook)
	line("checked", p.ago(r.Checked))
	line("next", p.until(r))
	line("versions", fmt.Sprint(r.Versions))
	line("newest", newestOf(r))
	if r.Pending > 0 {
		line("to go", query.Count(r.Pending, "tag"))
	}
	if r.Suspended {
		line("suspended", "yes: it is not checked")
	}
	if r.Error != "" {
		p.say("Failing since %s:\n  %s\n", p.at(r.Failing), clean(r.Error))
	}
	if r.Named > 1 {
		t := &table{head: []string{"MODULE", "VERSIONS", "NEWEST"}}
		for _, m := range r.Modules {
			t.add(plain(m.Name), plain(fmt.Sprint(m.Versions)), plain(string(m.Newest)))
		}
		p.table(t)
		if more := r.Named - len(r.Modules); more > 0 {
			p.say("and %s\n", query.Count(more, "more module"))
		}
	}
	if len(r.Problems) > 0 {
		p.say("Problems:\n")
	}
	for _, problem := range r.Problems {
		p.say("  %s %s\n", clean(problem.Reason), clean(problem.Text))
		if problem.Was != "" {
			p.say("    was at %s, is at %s\n", clean(problem.Was), clean(problem.Is))
		}
	}
	if more := r.Contradictions() - len(r.Problems); more > 0 {
		p.say("  and %s\n", query.Count(more, "more problem"))
	}
	if r.Skips == 0 {
		return
	}
	p.say("Tags of which no version was made, %d:\n", r.Skips)
	t := &table{head: []string{"TAG", "REASON"}}
	for _, s := range r.Skipped {
		t.add(plain(s.Tag), plain(s.Reason))
	}
	p.table(t)
	if more := r.Skips - len(r.Skipped); more > 0 {
		p.say("and %s\n", query.Count(more, "more tag"))
	}
}

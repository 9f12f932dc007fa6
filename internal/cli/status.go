package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/situation"
)

// statusCommands say whether anything is wrong.
type statusCommands struct{ *program }

func (p statusCommands) commands() []*cobra.Command { return []*cobra.Command{p.status()} }

// statusItems is how many things of one part are listed, so that all of it fits a screen.
const statusItems = 5

func (p statusCommands) status() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "status",
		Short: "Show in one screen whether anything is wrong",
		Long: `Shows the status of everything that you may see, the worst first: stacks, pending plans,
OpenBao and Vault, the objects of Flux (sources, Kustomizations, HelmReleases), the server,
the controllers that share the stacks, and the queue of runs. The server answers; the page
/status shows the same.

A part is bad if something in it is broken: a stack that failed, an object of Flux that is
not ready, a Vault that is sealed or does not answer, a controller whose Lease has expired
while it still has stacks, controllers without a leader. It needs attention if a user should
look at it: a pending plan, drift, a lock, a suspended object.

The exit code is 1 if any part is bad.`,
		Example: `  terrier status
  terrier status -o json`,
		GroupID:           groupView,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := p.connection.Overview(cmd.Context())
			if err != nil {
				return err
			}
			if !p.structured(f, o) {
				p.overview(o)
			}
			if o.Level == situation.Bad {
				return exit(1)
			}
			return nil
		},
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// levelColours are those of the levels; good ones have none.
var levelColours = map[situation.Level]string{situation.Bad: red, situation.Attention: yellow, situation.Unused: faint}

// overview prints a line for each part, and below it what is not good.
func (p statusCommands) overview(o situation.Overview) {
	colour := p.coloured()
	for _, part := range o.Parts {
		p.say("%s%*s%s\n", paint(colour, cmp.Or(levelColours[part.Level], green), string(part.Level)), 11-len(part.Level), "", paint(colour, bold, part.Name)+painted(": ")+painted(cut(part.Text, 160)))
		for _, c := range part.Controllers {
			says := query.Count(c.Shards, "shard")
			if c.Leads {
				says += ", leads"
			}
			if c.Stale {
				says += ", stale"
			}
			p.say("  controller %s: %s\n", c.Name, says)
		}
		for i, item := range part.Items {
			if i == statusItems {
				break
			}
			name := item.Name
			if item.Namespace != "" {
				name = item.Namespace + "/" + name
			}
			p.say("  %s %s: %s", item.Kind, name, paint(colour, levelColours[item.Level], item.Status))
			if since := age(p.Now(), item.Since); since != "" {
				p.say(" for %s", since)
			}
			if item.Message != "" {
				p.say(": %s", ends(item.Message, 120))
			}
			p.say("\n")
			if item.Next != "" {
				p.say("    %s\n", item.Next)
			}
		}
		if more := part.More + max(0, len(part.Items)-statusItems); more > 0 {
			p.say("  and %d more\n", more)
		}
	}
}

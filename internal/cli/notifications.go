package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p serverCommands) notifications() *cobra.Command {
	var (
		f        format
		q        query.NoticeQuery
		outcomes []string
	)
	c := &cobra.Command{
		Use:     "notifications",
		Aliases: []string{"notices"},
		Short:   "List sent notifications and their outcome",
		Long: `Lists the messages that Alerts sent to chats and other systems: the time, the object,
the Provider, and the outcome. A message that was dropped or is being retried has the
reason. You need the permission to list terraforms/notifications.`,
		Example: `  terrier notifications
  terrier notifications -A --outcome failed,retrying
  terrier notifications --name network --provider chat
  terrier notifications -A -o json | jq -r '.items[] | select(.outcome == "failed") | .error'`,
		GroupID: groupView,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Outcomes, err = outcomesOf(outcomes); err != nil {
				return err
			}
			n, namespace, err := p.connection.Notices(cmd.Context())
			if err != nil {
				return err
			}
			if !p.all {
				q.Namespace = namespace
			}
			page, err := n.Deliveries(cmd.Context(), access.Scope{}, q)
			if err == nil && !p.structured(f, page) {
				p.noticeTable(page, q)
			}
			return err
		},
	}
	p.allFlag(c)
	flags := c.Flags()
	flags.StringVar(&q.Name, "name", "", "only messages about the `object` with this name")
	flags.StringVar(&q.Provider, "provider", "", "only messages to this `provider`")
	flags.StringVar(&q.Event, "event", "", "only messages with this `reason`, for instance DriftDetected")
	flags.StringSliceVar(&outcomes, "outcome", nil, "only these outcomes: "+strings.Join(outcomeNames(), ", "))
	flags.IntVar(&q.Limit, "limit", 100, "how many messages, at most 1000")
	flags.IntVar(&q.Offset, "offset", 0, "how many messages to skip, to continue a list")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func outcomeNames() []string {
	var out []string
	for _, o := range query.Outcomes() {
		out = append(out, string(o))
	}
	return out
}

func outcomesOf(names []string) ([]query.Outcome, error) {
	var out []query.Outcome
	for _, n := range names {
		if !slices.Contains(query.Outcomes(), query.Outcome(n)) {
			return nil, usage("%q is not an outcome; the outcomes are: %s", n, strings.Join(outcomeNames(), ", "))
		}
		out = append(out, query.Outcome(n))
	}
	return out, nil
}

// outcomeColours mark the outcomes that need attention.
var outcomeColours = map[query.Outcome]string{query.NoticeFailed: red, query.NoticeRetrying: yellow, query.NoticeDropped: yellow}

func (p serverCommands) noticeTable(page query.NoticePage, q query.NoticeQuery) {
	t := &table{head: []string{"TIME", "EVENT", "OBJECT", "PROVIDER", "OUTCOME", "TRIES", "DETAILS"}}
	for _, d := range page.Items {
		provider := d.Provider
		if d.Address != "" {
			provider += " (" + d.Address + ")"
		}
		t.add(plain(d.At.UTC().Format("2006-01-02 15:04:05Z")), plain(d.Event), plain(d.Kind+" "+d.Namespace+"/"+d.Name), plain(provider),
			cell{string(d.Outcome), outcomeColours[d.Outcome]}, plain(strconv.Itoa(d.Attempts)), plain(cut(cmp.Or(d.Error, d.Message), 100)))
	}
	if len(page.Items) > 0 {
		p.table(t)
		p.say("\n")
	}
	p.say("%s\n", noticeCounts(page))
	if shown := q.Offset + len(page.Items); shown < page.Total && len(page.Items) > 0 {
		p.note("To list more, add: --offset %d\n", shown)
	}
}

// noticeCounts counts the messages by outcome.
func noticeCounts(page query.NoticePage) string {
	var parts []string
	for _, o := range query.Outcomes() {
		if n := page.Counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) == 0 {
		return "No matching messages."
	}
	return strings.Join(parts, ", ")
}

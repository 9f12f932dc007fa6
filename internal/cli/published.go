package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
)

// listing is a list of what the registry publishes, as a user asks for it.
type listing struct {
	q      catalog.Query
	latest bool
	f      format
}

// flags adds those of a list of modules or providers.
func (l *listing) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&l.q.Text, "search", "", "only those whose address has these `words`")
	flags.BoolVar(&l.latest, "latest", false, "put first what was published last")
	flags.IntVar(&l.q.Limit, "limit", 50, "how many rows, at most 200")
	flags.IntVar(&l.q.Offset, "offset", 0, "how many rows to skip, to continue a list")
	formatFlag(c, &l.f, forJSON, forYAML)
}

// about reports whether the argument of a list names one module or provider. Without one, or
// with a namespace, the list has all of them.
func (p *program) about(l *listing, args []string) bool {
	l.q.Namespace = p.connection.Namespace
	if len(args) == 0 {
		return false
	}
	if !strings.Contains(args[0], "/") {
		l.q.Namespace = args[0]
		return false
	}
	return true
}

// listPublished lists what the registry publishes.
func (p *program) listPublished(ctx context.Context, l listing) error {
	to, _, err := p.connection.Registry(ctx)
	if err != nil {
		return err
	}
	if l.latest {
		l.q.Sort = catalog.Newest
	}
	page, err := to.Published(ctx, l.q)
	if err != nil || p.structured(l.f, page) {
		return err
	}
	p.publishedPage(page, l)
	return nil
}

func (p *program) publishedPage(page catalog.Page, l listing) {
	what, head := "module", "MODULE"
	if l.q.Kind == catalog.Providers {
		what, head = "provider", "PROVIDER"
	}
	switch {
	case page.Total == 0 && (l.q.Text != "" || l.q.Namespace != ""):
		p.say("No %s that you may read matches.\n", what)
		return
	case page.Total == 0:
		p.say("The registry has no %s that you may read. To publish one: terrier %[1]s push DIR\n", what)
		return
	}
	t := &table{head: []string{head, "NEWEST", "VERSIONS", "PUBLISHED", "BY", "SIZE"}}
	for _, e := range page.Items {
		newest := plain(string(e.Newest))
		switch {
		case e.Problem != "":
			newest = cell{"not read: " + ends(e.Problem, 80), red}
		case e.Newest == "":
			newest = cell{"all retracted", yellow}
		}
		at, size := "", ""
		if !e.Published.IsZero() {
			at = e.Published.UTC().Format(time.RFC3339)
		}
		if e.Size > 0 {
			size = query.Size(int(e.Size))
		}
		t.add(plain(e.Address), newest, plain(fmt.Sprint(e.Versions)), plain(at), plain(e.By), plain(size))
	}
	p.table(t)
	if page.Unsorted {
		p.note("There are too many to sort them by time: they are sorted by name. Name a namespace, or use --search.\n")
	}
	if shown := page.Offset + len(page.Items); shown < page.Total {
		p.note("These are %d of %s. To list more, add: --offset %d\n", len(page.Items), query.Count(page.Total, what), shown)
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p *program) audit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, and whether that is what was written",
		Long: `The journal holds who approved, applied and overrode what, and what became of it.
Nothing is ever taken out of it. Each entry holds the hash of the one before, and
the newest hash is kept outside of the journal, so that whatever is changed,
removed or added afterwards is found.`,
		Example: `  terrier audit list --since 24h
  terrier audit verify`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(p.auditList(), p.auditVerify())
	return c
}

// auditAsked is what somebody wants to see of the journal.
type auditAsked struct {
	q                   query.AuditQuery
	what                []string
	since, until, stack string
	dir                 string
}

func (p *program) auditList() *cobra.Command {
	var (
		f format
		a auditAsked
	)
	c := &cobra.Command{
		Use:   "list",
		Short: "List who did what, the newest first",
		Long: `Lists what the journal says about the stacks, registries and templates of all
namespaces of which you may see it (the right to list terraforms/audit), and about
the platform itself if that is all of them.

With --dir it reads the files of a journal, an archive for instance, and asks
nobody.`,
		Example: `  terrier audit list
  terrier audit list --who ann@example.com --since 7d
  terrier audit list --stack apps/network --what approved,applied,apply-failed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("namespace") {
				a.q.Namespace = p.connection.Namespace
			}
			page, err := p.auditPage(cmd.Context(), a)
			if err != nil {
				return err
			}
			if done, err := p.structured(f, page); done {
				return err
			}
			return p.auditTable(page)
		},
	}
	flags := c.Flags()
	flags.StringVar(&a.q.Who, "who", "", "only what this `person` did")
	flags.StringSliceVar(&a.what, "what", nil, "only these, approved or applied for instance")
	flags.StringVar(&a.stack, "stack", "", "only what was done to this `object`: NAME or NAMESPACE/NAME")
	flags.StringVar(&a.since, "since", "", "only since then: 90m, 24h, 7d, or a time as 2026-11-28T09:00:00Z")
	flags.StringVar(&a.until, "until", "", "only before then")
	flags.StringVar(&a.q.Text, "search", "", "only entries in which all of these `words` occur")
	flags.IntVar(&a.q.Limit, "limit", 100, "how many, 1000 at most")
	flags.Uint64Var(&a.q.Before, "before", 0, "only entries before this `number`, to go on where a list ended")
	flags.StringVar(&a.dir, "dir", "", "read the files in this `directory`")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p *program) auditPage(ctx context.Context, a auditAsked) (query.AuditPage, error) {
	var err error
	if a.q.Since, err = p.moment(a.since); err != nil {
		return query.AuditPage{}, err
	}
	if a.q.Until, err = p.moment(a.until); err != nil {
		return query.AuditPage{}, err
	}
	for _, w := range a.what {
		a.q.What = append(a.q.What, query.AuditWhat(w))
	}
	a.q.Stack = a.stack
	if namespace, name, both := strings.Cut(a.stack, "/"); both {
		a.q.Namespace, a.q.Stack = namespace, name
	}
	if a.dir != "" {
		return query.ReadAudit(p.path(a.dir), a.q)
	}
	j, err := client.ConnectJournal(ctx, p.connection)
	if err != nil {
		return query.AuditPage{}, err
	}
	return j.Entries(ctx, query.AuditSight{}, a.q)
}

// moment reads a time, or how long ago it was.
func (p *program) moment(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return p.Now().AddDate(0, 0, -int(n)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return time.Time{}, usage("%q is neither a time nor how long ago it was", s)
	}
	return p.Now().Add(-d), nil
}

func (p *program) path(s string) string {
	if filepath.IsAbs(s) {
		return s
	}
	return filepath.Join(p.Dir, s)
}

func (p *program) auditTable(page query.AuditPage) error {
	t := table{head: []string{"SEQ", "WHEN", "WHO", "WHAT", "OBJECT", "ABOUT"}}
	for _, e := range page.Items {
		object := e.Object.Name
		if e.Object.Namespace != "" {
			object = e.Object.Namespace + "/" + object
		}
		colour := ""
		if e.Bad() {
			colour = red
		}
		t.add(plain(strconv.FormatUint(e.Seq, 10)), plain(e.At.UTC().Format("2006-01-02 15:04:05Z")), plain(query.AuditWho(e)),
			cell{string(e.What), colour}, plain(object), plain(cut(query.AuditAbout(e), 100)))
	}
	if err := t.print(p.Stdout, p.coloured()); err != nil {
		return err
	}
	if page.Next > 0 {
		fmt.Fprintf(p.Stderr, "There are more: --before %d\n", page.Next)
	}
	return nil
}

func (p *program) auditVerify() *cobra.Command {
	var (
		f     format
		dir   string
		heads []string
	)
	c := &cobra.Command{
		Use:   "verify",
		Short: "Find out whether the journal is what was written",
		Long: `Reads the whole journal and looks whether each entry follows the one before, and
whether the entry whose hash is kept outside of the journal is in it. It names the
first entry that is wrong, and ends with another exit code than 0.

The server does it, for those who may list terraforms/audit in all namespaces. With
--dir it is done here, with the files in a directory: of an archive, or of a server
that does not run. --head then says what should be in it, as an earlier
"terrier audit verify" or the ConfigMap terrier-system/terrier-audit has it.`,
		Example: `  terrier audit verify
  terrier audit verify --dir /var/lib/terrier/audit
  terrier audit verify --dir ./archive --head 41206:5d1f09aa…`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := p.auditReport(cmd.Context(), dir, heads)
			if err != nil {
				return err
			}
			if done, err := p.structured(f, r); err != nil || done && r.Problem == "" {
				return err
			} else if !done {
				err = p.sayAudit(r)
				if err != nil {
					return err
				}
			}
			if r.Problem != "" {
				return fault.New(fault.Broken, "JournalDamaged", errors.New(r.Problem))
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "verify the files in this `directory`")
	c.Flags().StringArrayVar(&heads, "head", nil, "with --dir, an entry that has to be there: `NUMBER:HASH` (repeatable)")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p *program) auditReport(ctx context.Context, dir string, heads []string) (query.AuditReport, error) {
	if dir == "" {
		if len(heads) > 0 {
			return query.AuditReport{}, usage("--head goes with --dir: the server has its own")
		}
		j, err := client.ConnectJournal(ctx, p.connection)
		if err != nil {
			return query.AuditReport{}, err
		}
		return j.VerifyJournal(ctx)
	}
	var known []query.AuditHead
	for _, h := range heads {
		number, hash, _ := strings.Cut(h, ":")
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil || seq == 0 || len(hash) != 64 {
			return query.AuditReport{}, usage("--head %q is not NUMBER:HASH", h)
		}
		known = append(known, query.AuditHead{Seq: seq, Hash: hash})
	}
	return query.VerifyAudit(p.path(dir), known...)
}

func (p *program) sayAudit(r query.AuditReport) error {
	s := &sheet{colour: p.coloured()}
	if r.Problem == "" {
		s.row("Journal", "it is what was written")
	}
	segments := "segments"
	if r.Segments == 1 {
		segments = "segment"
	}
	s.row("Entries", fmt.Sprintf("%d in %d %s", r.Entries, r.Segments, segments))
	if r.First > 1 {
		s.row("Begins", fmt.Sprintf("with entry %d: what was before is not here", r.First))
	}
	if r.Head.Seq > 0 {
		s.row("Head", fmt.Sprintf("%d:%s", r.Head.Seq, r.Head.Hash))
	}
	if r.Anchor != nil {
		s.row("Kept outside", fmt.Sprintf("entry %d", r.Anchor.Seq))
	}
	return p.write(s)
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// auditCommands show and verify the audit log.
type auditCommands struct{ *program }

func (p auditCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.audit()}
}

func (p auditCommands) audit() *cobra.Command {
	return group(&cobra.Command{
		Use:   "audit",
		Short: "Show and verify the audit log",
		Long: `The audit log records who approved, applied and overrode what, and the outcome.
Entries are never deleted. Each entry contains the hash of the previous one, and the
newest hash is also stored outside of the log. "terrier audit verify" finds every
entry that was changed, removed or inserted afterwards.`,
		Example: `  terrier audit list --since 24h
  terrier audit verify`,
		GroupID: groupView,
	}, p.auditList(), p.auditVerify())
}

// auditAsked is the filter of an audit list.
type auditAsked struct {
	q                   query.AuditQuery
	what                []string
	since, until, stack string
	kind                string
	dir                 string
}

func (p auditCommands) auditList() *cobra.Command {
	var (
		f format
		a auditAsked
	)
	c := &cobra.Command{
		Use:   "list",
		Short: "List the entries of the audit log, newest first",
		Long: `Lists the entries about stacks, registries and templates in the namespaces where you
have the permission to list terraforms/audit. With this permission in all namespaces,
the list includes the entries about the platform.

With --dir the command reads the files of an audit log, for instance of an archive,
and needs no server.`,
		Example: `  terrier audit list
  terrier audit list --who ann@example.com --since 7d
  terrier audit list --stack apps/network --what approved,applied,apply-failed
  terrier audit list --kind terraform.alustan.io --since 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("namespace") {
				a.q.Namespace = p.connection.Namespace
			}
			page, err := p.auditPage(cmd.Context(), a)
			if err == nil && !p.structured(f, page) {
				p.auditTable(page)
			}
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&a.q.Who, "who", "", "only actions of this `user`")
	flags.StringSliceVar(&a.what, "what", nil, "only these actions, for instance approved,applied")
	flags.StringVar(&a.stack, "stack", "", "only actions on this `object`: NAME or NAMESPACE/NAME, with KIND/ before it if several kinds have the name")
	flags.StringVar(&a.kind, "kind", "", "only actions on stacks of this `kind`, for instance terraform.infra.contrib.fluxcd.io")
	flags.StringVar(&a.since, "since", "", "only entries since this time: 90m, 24h, 7d, or 2026-11-28T09:00:00Z")
	flags.StringVar(&a.until, "until", "", "only entries before this time")
	flags.StringVar(&a.q.Text, "search", "", "only entries that contain all of these `words`")
	flags.IntVar(&a.q.Limit, "limit", 100, "how many entries, at most 1000")
	flags.Uint64Var(&a.q.Before, "before", 0, "only entries before this `number`, to continue a list")
	flags.StringVar(&a.dir, "dir", "", "read the files in this `directory`")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p auditCommands) auditPage(ctx context.Context, a auditAsked) (query.AuditPage, error) {
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
	if err := a.object(p.connection.StackKinds()); err != nil {
		return query.AuditPage{}, err
	}
	if a.dir != "" {
		return query.ReadAudit(p.path(a.dir), a.q)
	}
	j, err := p.connection.AuditLog(ctx)
	if err != nil {
		return query.AuditPage{}, err
	}
	return j.Entries(ctx, query.AuditSight{}, a.q)
}

// anywhere is no name of a namespace.
const anywhere = "*"

// object reads which objects the entries are to be about.
func (a *auditAsked) object(kinds query.Kinds) error {
	if a.stack != "" {
		key, err := query.ParseKey(a.stack, cmp.Or(a.q.Namespace, anywhere))
		if err != nil {
			return err
		}
		a.q.Stack = key.Name
		if key.Namespace != anywhere {
			a.q.Namespace = key.Namespace
		}
		if key.Kind != "" && a.kind != "" {
			return usage("--kind: --stack %s names a kind, too: leave out one of them", a.stack)
		}
		a.kind = cmp.Or(a.kind, key.Kind)
	}
	if a.kind == "" {
		return nil
	}
	of, err := query.Canonical(kinds, query.Key{Kind: a.kind})
	if err != nil {
		return err
	}
	a.q.Kind = &of.Kind
	return nil
}

// moment reads a time, or a duration before now.
func (p auditCommands) moment(s string) (time.Time, error) {
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
		return time.Time{}, usage("%q is not a time: use 90m, 24h, 7d, or 2026-11-28T09:00:00Z", s)
	}
	return p.Now().Add(-d), nil
}

func (p auditCommands) auditTable(page query.AuditPage) {
	t := &table{head: []string{"SEQ", "TIME", "USER", "ACTION", "OBJECT", "DETAILS"}}
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
	p.table(t)
	if page.Next > 0 {
		p.note("To list older entries, add: --before %d\n", page.Next)
	}
}

func (p auditCommands) auditVerify() *cobra.Command {
	var (
		f     format
		dir   string
		heads []string
	)
	c := &cobra.Command{
		Use:   "verify",
		Short: "Verify the audit log",
		Long: `Reads the whole audit log and checks that each entry follows the previous one, and
that the entry whose hash is stored outside of the log is in it. If the check fails,
the command names the first wrong entry and exits with a code other than 0.

By default the server verifies its own log. You need the permission to list
terraforms/audit in all namespaces. With --dir the command verifies the files in a
directory instead: of an archive, or of a server that is stopped. --head then names
an entry that the files have to contain, as printed by an earlier "terrier audit
verify" or stored in the ConfigMap terrier-system/terrier-audit.`,
		Example: `  terrier audit verify
  terrier audit verify --dir /var/lib/terrier/audit
  terrier audit verify --dir ./archive --head 41206:5d1f09aa…`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := p.auditReport(cmd.Context(), dir, heads)
			if err != nil {
				return err
			}
			if !p.structured(f, r) {
				p.sayAudit(r)
			}
			if r.Problem != "" {
				return fault.New(fault.Broken, "AuditLogDamaged", errors.New(r.Problem))
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "verify the files in this `directory`")
	c.Flags().StringArrayVar(&heads, "head", nil, "with --dir, an entry that must be in the files: `NUMBER:HASH` (repeatable)")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p auditCommands) auditReport(ctx context.Context, dir string, heads []string) (query.AuditReport, error) {
	if dir == "" {
		if len(heads) > 0 {
			return query.AuditReport{}, usage("--head needs --dir: the server has an anchor of its own")
		}
		j, err := p.connection.AuditLog(ctx)
		if err != nil {
			return query.AuditReport{}, err
		}
		return j.VerifyAuditLog(ctx)
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

func (p auditCommands) sayAudit(r query.AuditReport) {
	s := &sheet{colour: p.coloured()}
	if r.Problem == "" {
		s.row("Audit log", "verified")
	}
	s.row("Entries", fmt.Sprintf("%d in %s", r.Entries, query.Count(r.Segments, "segment")))
	if r.First > 1 {
		s.row("Starts", fmt.Sprintf("with entry %d: earlier entries are not here", r.First))
	}
	if r.Head.Seq > 0 {
		s.row("Head", fmt.Sprintf("%d:%s", r.Head.Seq, r.Head.Hash))
	}
	if r.Anchor != nil {
		s.row("Anchor", fmt.Sprintf("entry %d", r.Anchor.Seq))
	}
	p.write(s)
}

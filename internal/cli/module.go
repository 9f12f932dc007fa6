package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/client/publish"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

// moduleCommands publish modules in the registry of a server.
type moduleCommands struct{ *program }

func (p moduleCommands) commands() []*cobra.Command {
	return []*cobra.Command{group(&cobra.Command{
		Use:     "module",
		Short:   "Publish modules in the registry, and list or retract versions",
		GroupID: groupOperate,
		Example: `  terrier module push ./modules/network --version 1.2.3
  terrier module list
  terrier module show net/network/aws
  terrier module retract net/network/aws 1.2.3 --reason "deletes the subnets"
  terrier module repositories`,
	}, p.push(), p.list(), p.show(), p.uses(), p.retract(), p.restore(), p.repositories())}
}

// pushOptions are how a module is pushed.
type pushOptions struct {
	publish.ModuleOptions
	ignore bool // versions that exist
	dry    bool
	f      format
}

func (p moduleCommands) push() *cobra.Command {
	var o pushOptions
	c := &cobra.Command{
		Use:   "push DIR",
		Short: "Publish a directory as a version of a module",
		Long: `Packs a directory and publishes it as a version of a module. The name of the module
is NAMESPACE/NAME/SYSTEM. It comes from flags, or from a file .terrier-module.hcl in the
directory. The file boring-registry.hcl of boring-registry is read as well:

  metadata {
    namespace = "net"
    name      = "network"
    system    = "aws" # or provider
    version   = "1.2.3"
  }

A published version never changes. If the content is the same, the command says that the
version is published already, and succeeds. With other content it fails, or with
--ignore-existing leaves the version as it is.

Configuration that no engine can read is refused, with the file and the line: at the root of
the module, and below the directory modules.

With --version-from-tag the version is that of the git tag of the commit that is checked
out: 1.2.3 or v1.2.3, after --tag-prefix. The command fails if a file differs from the
commit. With --recursive, modules without a tag are skipped.

The archive contains neither .git and .terraform, nor states. The file .terraformignore of
the directory, and then --exclude, leave out more, with the patterns of a .gitignore file; a
pattern that begins with ! takes files back in.
Files that often hold secrets are refused: .env, terraform.tfvars, *.auto.tfvars, private
keys and others. The error names them and the patterns that leave them out.
The same files always make the same archive.`,
		Example: `  terrier module push . --namespace net --name network --system aws --version 1.2.3
  terrier module push ./modules --recursive --version-from-tag --tag-prefix "{name}-"
  terrier module push . --exclude "examples/" --exclude "!examples/basic/" --dry-run
  TERRIER_SERVER=https://registry.example.com terrier module push . --token-file ./token`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Dir, o.Namespace = p.path(args[0]), p.connection.Namespace
			return p.pushModules(cmd.Context(), o)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.Name, "name", "", "the `name` of the module")
	flags.StringVar(&o.System, "system", "", "the target `system` of the module, for instance aws")
	flags.StringVar(&o.Version, "version", "", "the `version` to publish")
	flags.BoolVar(&o.FromTag, "version-from-tag", false, "publish the version of the git tag of the commit that is checked out")
	flags.StringVar(&o.TagPrefix, "tag-prefix", "", "what is before the version in a tag; {namespace}, {name} and {system} are those of the module")
	flags.BoolVar(&o.Recursive, "recursive", false, "publish each directory below DIR that has a metadata file")
	flags.StringVar(&o.Constraint, "version-constraints-semver", "", "publish only versions that match this `constraint`, for instance \">= 1.0.0\"")
	flags.StringArrayVar(&o.Exclude, "exclude", nil, "a `pattern` of files to leave out (repeatable)")
	flags.BoolVar(&o.Secrets, "allow-secret-files", false, "publish files that often hold secrets, too")
	flags.BoolVar(&o.ignore, "ignore-existing", false, "leave versions that exist with other content as they are")
	flags.BoolVar(&o.dry, "dry-run", false, "pack, and publish nothing")
	formatFlag(c, &o.f, forJSON, forYAML)
	return c
}

func directories(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// Outcomes of a module of a push.
const (
	outcomePublished = "published"
	outcomeUnchanged = "unchanged"
	outcomeExists    = "exists"
	outcomeSkipped   = "skipped"
	outcomePacked    = "packed"
)

// pushed is what became of one module.
type pushed struct {
	Module  string `json:"module"`
	Version string `json:"version,omitempty"`
	Dir     string `json:"dir"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Size    int64  `json:"size,omitempty"`

	first client.PublishedModule // of a version that was published before
}

func (p moduleCommands) pushModules(ctx context.Context, o pushOptions) error {
	modules, err := publish.Modules(o.ModuleOptions)
	if err != nil {
		return err
	}
	var to *client.Registry
	if !o.dry {
		if to, _, err = p.connection.Registry(ctx); err != nil {
			return err
		}
	}
	var all []pushed
	for _, m := range modules {
		var one pushed
		if one, err = p.pushModule(ctx, to, m, o.ignore); err != nil {
			break
		}
		all = append(all, one)
		if o.f == forPeople {
			p.sayPushed(one)
		}
	}
	if o.f != forPeople {
		p.structured(o.f, map[string]any{"items": all})
	}
	return err
}

func (p moduleCommands) sayPushed(one pushed) {
	name := one.Module + " " + one.Version
	switch one.Outcome {
	case outcomeSkipped:
		p.say("Skipped %s: %s\n", strings.TrimSpace(name), one.Reason)
	case outcomeExists:
		p.say("%s exists with other content, and stays as it is\n", name)
	case outcomeUnchanged:
		by := ""
		if one.first.By != "" {
			by = " by " + clean(one.first.By)
		}
		p.say("%s is published already, since %s%s: the content is the same, and nothing changed\n", name, p.at(one.first.Published), by)
	case outcomePacked:
		p.say("Packed %s: %s, sha256:%s\n", name, query.Size(int(one.Size)), one.SHA256)
	default:
		p.say("Published %s: %s, sha256:%s\n", name, query.Size(int(one.Size)), one.SHA256)
	}
}

// pushModule packs a module, and publishes it unless there is no registry.
func (p moduleCommands) pushModule(ctx context.Context, to *client.Registry, m publish.Module, ignore bool) (one pushed, err error) {
	one = pushed{Module: m.Address.String(), Version: string(m.Version), Dir: m.Dir, Outcome: outcomeSkipped, Reason: m.Skipped}
	if m.Skipped != "" {
		return one, nil
	}
	f, err := os.CreateTemp("", "terrier-module-*.tar.gz")
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	sum := sha256.New()
	err = m.Pack(io.MultiWriter(f, sum))
	info, failed := f.Stat()
	if err = errors.Join(err, failed, f.Close()); err != nil {
		return one, err
	}
	one.Outcome, one.Size, one.SHA256 = outcomePacked, info.Size(), hex.EncodeToString(sum.Sum(nil))
	if to == nil {
		return one, nil
	}
	one.first, err = to.PushModule(ctx, m.Address, m.Version, f.Name())
	one.Outcome = outcomePublished
	if one.first.Unchanged {
		one.Outcome = outcomeUnchanged
	}
	if ignore && fault.Reason(err, "") == client.ReasonStays {
		one.Outcome, one.SHA256, one.Size, err = outcomeExists, "", 0, nil
	}
	if err != nil {
		err = fmt.Errorf("publishing %s %s: %w", m.Address, m.Version, err)
	}
	return one, err
}

func (p moduleCommands) list() *cobra.Command {
	l := listing{q: catalog.Query{Kind: catalog.Modules}}
	c := &cobra.Command{
		Use:   "list [NAMESPACE | NAMESPACE/NAME/SYSTEM]",
		Short: "List the modules of the registry, or the versions of one",
		Long: `Lists the modules of the namespaces that you may read, or of one namespace: the newest
version that clients choose, how many versions there are, and when the newest was published
and by which user. With the address of a module it lists the versions of that one.`,
		Example: `  terrier module list
  terrier module list net --latest
  terrier module list net/network/aws
  terrier module list net/network/aws -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !p.about(&l, args) {
				return p.listPublished(cmd.Context(), l)
			}
			m, to, err := p.module(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			list, err := to.Modules(cmd.Context(), m)
			if err == nil && !p.structured(l.f, map[string]any{"items": list}) {
				p.moduleVersions(list)
			}
			return err
		},
	}
	l.flags(c)
	return c
}

// module reads the address of a command, and connects to the registry.
func (p moduleCommands) module(ctx context.Context, name string) (address.Module, *client.Registry, error) {
	m, err := address.ParseModule(name)
	if err != nil {
		return m, nil, err
	}
	to, _, err := p.connection.Registry(ctx)
	return m, to, err
}

func (p moduleCommands) moduleVersions(list []client.RegistryVersion) {
	head := []string{"VERSION", "PUBLISHED", "BY", "SIZE", "STATUS"}
	tags := slices.ContainsFunc(list, func(v client.RegistryVersion) bool { return v.Origin != nil })
	if tags {
		head = slices.Insert(head, 4, "TAG", "COMMIT")
	}
	t := &table{head: head}
	for _, v := range list {
		cells := p.published(v)
		if tags {
			var from client.ModuleOrigin
			if v.Origin != nil {
				from = *v.Origin
			}
			cells = slices.Insert(cells, 4, plain(from.Tag), plain(shortCommit(from.Commit)))
		}
		t.add(cells...)
	}
	p.table(t)
}

// published are the cells of a version: when it was published, by which user, its size, and
// whether it was retracted. What another program published has no date.
func (p *program) published(v client.RegistryVersion) []cell {
	at, size := "", ""
	if !v.Published.IsZero() {
		at = v.Published.UTC().Format(time.RFC3339)
	}
	if v.Size > 0 {
		size = query.Size(int(v.Size))
	}
	status := cell{text: "available"}
	if r := v.Retracted; r != nil {
		by := ""
		if r.By != "" {
			by = " by " + r.By
		}
		status = cell{"retracted " + age(p.Now(), r.At) + " ago" + by + ": " + r.Reason, yellow}
	}
	return []cell{plain(string(v.Version)), plain(at), plain(v.By), plain(size), status}
}

func (p moduleCommands) retract() *cobra.Command {
	var r retraction
	c := &cobra.Command{
		Use:   "retract NAMESPACE/NAME/SYSTEM VERSION",
		Short: "Withdraw a version of a module",
		Long: `Withdraws a version of a module: it disappears from the list of versions, so that no
version constraint selects it. Its content stays, and the version cannot be published
again with other content. Clients that ask for exactly this version are refused.

The command says first which stacks use the version, of those that you may list, and of
how many that is not known. Unless no stack does, it asks for a confirmation.`,
		Example: `  terrier module retract net/network/aws 1.2.3 --reason "deletes the subnets; use 1.2.4"
  terrier module retract net/network/aws 1.2.3 --reason "deletes the subnets; use 1.2.4" --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			v, err := address.ParseVersion(args[1])
			if err != nil {
				return err
			}
			m, to, err := p.module(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.program.retract(cmd.Context(), r, m, v, usedby.Question{Module: m.String()}, func() error {
				return to.RetractModule(cmd.Context(), m, v, r.reason)
			})
		},
	}
	r.flags(c)
	return c
}

func (p moduleCommands) restore() *cobra.Command {
	return &cobra.Command{
		Use:               "restore NAMESPACE/NAME/SYSTEM VERSION",
		Short:             "Make a retracted version of a module usable again",
		Example:           `  terrier module restore net/network/aws 1.2.3`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := address.ParseVersion(args[1])
			if err != nil {
				return err
			}
			m, to, err := p.module(cmd.Context(), args[0])
			if err == nil {
				err = to.RestoreModule(cmd.Context(), m, v)
			}
			if err == nil {
				p.say("Restored %s %s\n", m, v)
			}
			return err
		},
	}
}

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

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/scan"
)

// scanCommands look for secrets in plain text.
type scanCommands struct{ *program }

func (p scanCommands) commands() []*cobra.Command { return []*cobra.Command{p.scan()} }

// scanFlags say what is scanned.
type scanFlags struct {
	files, exclude []string
	cluster        bool
	states         bool
	baseline       string
	write          bool
}

func (p scanCommands) scan() *cobra.Command {
	var (
		f     format
		flags scanFlags
	)
	c := &cobra.Command{
		Use:   "scan [DIR | -f FILE | --cluster]",
		Short: "List secrets in plain text, and what to do instead",
		Long: `Lists hard-coded secrets: in manifests (variables of containers and of stacks, Secrets,
ConfigMaps, templates of tenants), in files of variables, in modules, in states, and in
blocks of code in Markdown. A finding names the place and never the value. By default the
command scans the current directory. It sends nothing anywhere.

A value is a finding if it has the format of a token that is known (a private key, a token
of AWS, GitHub, GitLab, Slack, Google, OpenBao, Vault and others, a JSON Web Token), or if it
is written out beside a name such as password, token or api_key. In a Secret each value is
one, and in a state each value that its provider marks as sensitive. References such as
vault://kyuubi/database, templates and placeholders are none.

A comment in the line of a finding or above it allows it, if it gives a reason:
terrier:allow-secret REASON. A baseline has the findings of today, so that a pipeline fails
for new ones only: write one with --baseline FILE --write-baseline, and give it with
--baseline FILE. It names places, without values: another secret in the same place is known
as well.

With --cluster the command scans the objects of a namespace, or of all with -A, as the user of
the kubeconfig: stacks, templates, ConfigMaps, workloads, and the Kustomizations and
HelmReleases of Flux. --states adds the states of stacks, which takes the permission to read
them. Secrets of the cluster are not scanned: they are a place for secrets.

The exit code is 1 if there are findings, or if a file or object could not be scanned.`,
		Example: `  terrier scan
  terrier scan ./clusters -o json
  terrier scan . --baseline .terrier-baseline.json --write-baseline
  terrier scan --cluster -A --states
  tofu state pull | terrier scan -f -`,
		GroupID: groupView,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := p.scanned(cmd.Context(), args, flags)
			if err != nil {
				return err
			}
			if flags.write {
				return p.writeBaseline(flags.baseline, report)
			}
			if flags.baseline != "" {
				text, err := p.readFile(flags.baseline, manifestBytes)
				if err != nil {
					return err
				}
				known, err := scan.ParseBaseline(text)
				if err != nil {
					return fault.New(fault.Invalid, "BaselineInvalid", fmt.Errorf("%s: %w", flags.baseline, err))
				}
				report = report.Without(known)
			}
			if !p.structured(f, report) {
				p.secretsFound(report, flags)
			}
			if !report.Clean() {
				return exit(1)
			}
			return nil
		},
	}
	p.allFlag(c)
	c.Flags().StringArrayVarP(&flags.files, "filename", "f", nil, "scan this `file`; - is standard input")
	c.Flags().StringArrayVar(&flags.exclude, "exclude", nil, "pass over files and directories that match this `pattern`, by name or by path")
	c.Flags().BoolVar(&flags.cluster, "cluster", false, "scan the objects of the cluster")
	c.Flags().BoolVar(&flags.states, "states", false, "with --cluster: scan the states of stacks as well")
	c.Flags().StringVar(&flags.baseline, "baseline", "", "a `file` with known findings, which are not reported")
	c.Flags().BoolVar(&flags.write, "write-baseline", false, "write all findings into the file of --baseline")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// scanned scans what the arguments name.
func (p scanCommands) scanned(ctx context.Context, args []string, flags scanFlags) (scan.Report, error) {
	ways := 0
	for _, chosen := range []bool{len(args) == 1, len(flags.files) > 0, flags.cluster} {
		if chosen {
			ways++
		}
	}
	switch {
	case ways > 1:
		return scan.Report{}, usage("a directory, -f and --cluster exclude each other")
	case (flags.states || p.all) && !flags.cluster:
		return scan.Report{}, usage("--states and --all-namespaces are for --cluster")
	case flags.write && flags.baseline == "":
		return scan.Report{}, usage("name the file to write with --baseline")
	case flags.cluster:
		return p.scanCluster(ctx, flags.states)
	case len(flags.files) > 0:
		return p.scanFiles(flags.files)
	}
	if err := scan.CheckPatterns(flags.exclude); err != nil {
		return scan.Report{}, usage("--exclude: %w", err)
	}
	dir := "."
	if len(args) == 1 {
		dir = args[0]
	}
	at := p.path(dir)
	info, err := os.Stat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return scan.Report{}, fault.New(fault.Missing, "FileMissing", fmt.Errorf("there is no directory %s", dir))
	case err != nil:
		return scan.Report{}, err
	case !info.IsDir():
		return p.scanFiles(args)
	}
	return scan.Tree(ctx, os.DirFS(at), filepath.ToSlash(filepath.Clean(dir)), flags.exclude)
}

func (p scanCommands) scanFiles(names []string) (scan.Report, error) {
	r := scan.Report{Findings: []scan.Finding{}}
	for _, name := range names {
		if name == stdin {
			if err := r.Read(scan.Stdin, p.Stdin); err != nil {
				return r, err
			}
			continue
		}
		f, err := os.Open(p.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			return r, fault.New(fault.Missing, "FileMissing", err)
		}
		if err != nil {
			return r, err
		}
		err = errors.Join(r.Read(filepath.ToSlash(name), f), f.Close())
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// scanCluster scans objects of the cluster, and states if they are asked for.
func (p scanCommands) scanCluster(ctx context.Context, states bool) (scan.Report, error) {
	r := scan.Report{Findings: []scan.Finding{}}
	object := func(name string, text []byte) error {
		r.Files++
		r.Add(scan.Object(name, text))
		return nil
	}
	denied, err := p.connection.Manifests(ctx, p.all, object)
	for _, resource := range denied {
		r.Unread = append(r.Unread, scan.Unread{File: resource, Why: "you may not list them"})
	}
	if err != nil || !states {
		return r, err
	}
	filter, s, err := p.filter(ctx, nil, "")
	if err != nil {
		return r, err
	}
	stacks, err := s.List(ctx, filter)
	if err != nil {
		return r, err
	}
	for _, st := range stacks {
		name := "state of " + st.Key().String()
		switch state, err := s.PullState(ctx, st.Key(), ""); fault.Of(err) {
		case fault.None:
			if err := object(name, state); err != nil {
				return r, err
			}
		case fault.Missing, fault.Invalid: // it has none, or Terrier does not store it
		default:
			if ctx.Err() != nil {
				return r, err
			}
			r.Unread = append(r.Unread, scan.Unread{File: name, Why: err.Error()})
		}
	}
	return r, nil
}

func (p scanCommands) writeBaseline(file string, r scan.Report) error {
	text, err := json.MarshalIndent(scan.BaselineOf(r), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.path(file), append(text, '\n'), 0o644); err != nil {
		return err
	}
	p.say("Wrote %s to %s.\n", query.Count(len(r.Findings), "finding"), file)
	return nil
}

// secretsFound lists the findings, and for each kind of place what to do instead.
func (p scanCommands) secretsFound(r scan.Report, flags scanFlags) {
	for _, f := range r.Findings {
		at := f.File
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		p.say("%s: %s\n", at, f)
		if f.Note != "" {
			p.say("  %s\n", f.Note)
		}
	}
	if len(r.Findings) > 0 {
		p.say("\nReplace each of these secrets, since it was readable where it stands. Then:\n")
		for _, kind := range r.Kinds() {
			p.say("  In %s: %s.\n", kind.Title(), kind.Remedy())
		}
		p.say("\n")
	}
	for _, u := range r.Unread {
		how := "not scanned"
		if u.Scanned {
			how = "scanned line by line"
		}
		p.note("%s: %s: %s\n", u.File, how, u.Why)
	}
	if len(r.Stale) > 0 {
		p.note("The baseline has %s that %s no more: write it again with --write-baseline.\n", query.Count(len(r.Stale), "entry"), plural(len(r.Stale), "is found", "are found"))
	}
	what := "file"
	if flags.cluster {
		what = "object"
	}
	more := ""
	for _, part := range []struct {
		n    int
		what string
	}{{r.Known, "known by the baseline"}, {len(r.Allowed), "allowed by a comment"}} {
		if part.n > 0 {
			more += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	p.say("%s in %s%s.\n", query.Count(len(r.Findings), "finding"), query.Count(r.Files, what), more)
}

package origin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/source"
)

// turn lists the tags of a repository, and takes some of the new ones.
func (p *Poller) turn(ctx context.Context, r Repository, now *record) error {
	began := p.o.Now()
	f, err := r.forms()
	if err != nil {
		return err
	}
	git, err := p.open(ctx, r)
	if err != nil {
		return err
	}
	tags, err := within(ctx, r.timeout(), git.Tags)
	if err != nil {
		return err
	}
	listed := listing(tags)
	if listed == now.Listed && now.Pending == 0 && now.Error == "" && now.Named > mostModules {
		return nil // nothing is new, and to read what users retracted takes a read of each module
	}
	all, named := f.candidates(tags)
	now.keep(tags)
	now.Listed = listed // what is left to do is in Pending, and a failure in Error
	d, err := p.decided(ctx, f, all, now.Known)
	if err != nil {
		return err
	}
	now.say(d, named, p.o.Now())
	var failures []error
	var made []string
	for i, c := range d.take {
		if i >= turnTags || len(failures) >= turnFailures || p.o.Now().Sub(began) >= turnTime {
			break
		}
		published, err := p.take(ctx, r, git, c, now)
		if errors.Is(err, errKnown) {
			failures = append(failures, err)
			break
		}
		if err != nil {
			now.know(c, Outcome{Object: c.Object, Failures: c.failures + 1})
			failures = append(failures, fmt.Errorf("the tag %s: %w", c.Name, err))
		}
		if published {
			made = append(made, fmt.Sprintf("%s from the tag %s at %s", c, c.Name, short(c.Commit)))
		}
	}
	if len(d.take) > 0 {
		if d, err = p.decided(ctx, f, all, now.Known); err == nil {
			now.say(d, named, p.o.Now())
		}
	}
	p.announce(r, made, now.Pending)
	if len(failures) > 0 {
		return failures[0]
	}
	return err
}

// open is the git client of a repository.
func (p *Poller) open(ctx context.Context, r Repository) (*source.Git, error) {
	var a Access
	if r.Access != nil {
		var err error
		if a, err = r.Access(ctx); err != nil {
			return nil, err
		}
	}
	all := "" // no file of Git LFS is left out by default
	g := &source.Git{URL: r.URL, Auth: a.Auth, KnownHosts: a.KnownHosts, Ignore: &all, Out: p.o.Out, Scratch: p.o.Scratch}
	if r.Mode != "" {
		var err error
		if g.Verify, err = source.GitVerifyFrom(r.Mode, a.Keys); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// within limits the time of one request.
func within[T any](ctx context.Context, most time.Duration, do func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	v, err := do(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = fault.New(fault.Later, source.ReasonGit, fmt.Errorf("the git server did not answer within %s", most))
	}
	return v, err
}

// decided reads what is published of the modules of candidates, and of the module that the
// settings name, and decides.
func (p *Poller) decided(ctx context.Context, f forms, all []candidate, known map[string]Outcome) (decision, error) {
	has := published{}
	modules := map[address.Module]bool{}
	for _, c := range all {
		modules[c.module] = true
	}
	if m, ok := f.only(); ok {
		modules[m] = true
	}
	for m := range modules {
		versions, err := p.o.Registry.ModuleVersions(ctx, m)
		if err != nil && fault.Of(err) != fault.Missing {
			return decision{}, fmt.Errorf("reading the versions of %s: %w", m, err)
		}
		for _, v := range versions {
			has.add(m, v.Version, v)
		}
	}
	return decide(shown(f.URL), all, has, known), nil
}

// say puts a decision into words for users.
func (r *record) say(d decision, named []Skip, now time.Time) {
	since := map[string]time.Time{}
	for _, p := range r.Problems {
		since[p.Text] = p.Since
	}
	problems, all := d.problems()
	for i, p := range problems {
		if problems[i].Since = since[p.Text]; problems[i].Since.IsZero() {
			problems[i].Since = now.UTC().Truncate(time.Second)
		}
	}
	r.Pending, r.Problems, r.Contradicting = len(d.take), problems, all
	r.count(d.there.modules())
	skipped := slices.Concat(d.skipped, named)
	r.Skips, r.Skipped = len(skipped), skipped[:min(len(skipped), mostSkipped)]
}

// count says how many versions there are, and which is the newest.
func (r *record) count(all []Module) {
	r.Versions, r.Newest, r.Named, r.Modules = 0, "", len(all), all[:min(len(all), mostModules)]
	best := Module{}
	for _, m := range all {
		r.Versions += m.Versions
		if m.Newest != "" && (best.Newest == "" || m.Newest.Compare(best.Newest) > 0) {
			best, r.Newest = m, m.Name+" "+string(m.Newest)
		}
	}
}

// mostAnnounced is how many versions of one turn users are told of by name.
const mostAnnounced = 3

// announce tells users what was published. The first check of a repository is no flood of
// events.
func (p *Poller) announce(r Repository, made []string, pending int) {
	const reason = "VersionPublished"
	switch {
	case len(made) == 0:
	case len(made) <= mostAnnounced:
		p.tell(r, false, reason, "published "+strings.Join(made, ", and "))
	default:
		rest := ""
		if pending > 0 {
			rest = ", with " + plural.Count(pending, "tag") + " to come"
		}
		p.tell(r, false, reason, fmt.Sprintf("published %d versions, the first of them %s%s", len(made), made[0], rest))
	}
}

// take makes a version of a tag. An error means that the tag may be tried again; what is
// wrong with the tag itself is an outcome.
func (p *Poller) take(ctx context.Context, r Repository, git *source.Git, c candidate, now *record) (published bool, err error) {
	if _, tried := now.Known[c.Name]; !tried && len(now.Known) >= mostKnown {
		return false, errKnown
	}
	made, err := within(ctx, r.timeout(), func(ctx context.Context) (registry.ModuleVersion, error) { return p.publish(ctx, r, git, c) })
	switch {
	case err == nil && made.Origin != nil:
		published = true
		p.o.Counts.Published(r.Key)
		p.o.Log.Info("module published", "module", c.module.String(), "version", string(c.version), "tag", c.Name, "commit", c.Commit, "repository", r.Key.String(), "sha256", made.SHA256)
	case err == nil: // a user had uploaded the same bytes
		now.know(c, Outcome{Object: c.Object})
	case fault.Reason(err, "") == registry.VersionExists:
		text := fmt.Sprintf("the tag %s at %s: %s", c.Name, short(c.Commit), source.Message(err))
		now.know(c, Outcome{Object: c.Object, Text: text, Problem: true})
	case fault.Of(err) == fault.Invalid || fault.Reason(err, "") == registry.VersionRetracted:
		now.know(c, Outcome{Object: c.Object, Text: source.Message(err)})
	default:
		return false, err
	}
	now.Pending--
	return published, nil
}

// mostKnown is how many tags of which no version was made are remembered, and outcomeBytes how
// much of the reason of each.
const (
	mostKnown    = 10_000
	outcomeBytes = 500
)

// errKnown is why no further tag of a repository is tried.
var errKnown = invalid("no version could be made of %d tags of the repository, and no further tag is tried: delete tags that are no modules, or name the form of those that are in tags", mostKnown)

func (r *record) know(c candidate, o Outcome) {
	if r.Known == nil {
		r.Known = map[string]Outcome{}
	}
	o.Text = cut(o.Text, outcomeBytes)
	r.Known[c.Name] = o
}

// publish fetches the module of a tag, packs it as the command line does, and publishes it.
func (p *Poller) publish(ctx context.Context, r Repository, git *source.Git, c candidate) (v registry.ModuleVersion, err error) {
	claim, err := p.o.Room.Claim(0)
	if err != nil {
		return v, err
	}
	defer claim.Close()
	bounded := *git
	pack := &limited{left: mostPack, url: r.URL}
	bounded.Bounded = func(from io.Reader) io.Reader {
		return io.TeeReader(io.TeeReader(from, pack), claim.Writer(io.Discard))
	}
	dir, err := os.MkdirTemp(p.o.Scratch, "fetch-module-")
	if err != nil {
		return v, fmt.Errorf("making a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tagged, err := bounded.Checkout(ctx, c.Tag, c.directory, dir)
	if err != nil {
		return v, err
	}
	module, err := source.OpenModule(dir, nil)
	if err != nil {
		return v, err
	}
	if files, _, err := module.Secrets(); err != nil || len(files) > 0 {
		return v, cmp.Or(err, secretFiles(files))
	}
	from, to := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := module.Pack(to)
		packed <- errors.Join(err, to.CloseWithError(err))
	}()
	v, err = p.o.Registry.PublishModule(ctx, c.module, c.version, registry.Upload{
		By: by(r), Content: from,
		Origin: &registry.Origin{Repository: shown(r.URL), Directory: strings.TrimPrefix(c.directory, "."), Tag: c.Name, Commit: c.Commit, Tagger: tagged.By, Tagged: tagged.At, Signer: tagged.Signer},
	})
	closed := from.Close() // ends the packing, if the registry has read a part of it alone
	if failed := <-packed; err == nil {
		err = errors.Join(failed, closed)
	}
	return v, err
}

// secretFiles refuses files that often hold secrets: published content never changes, and
// every reader of the namespace gets it.
func secretFiles(files []string) error {
	return fault.New(fault.Invalid, source.ReasonModule, fmt.Errorf("the archive would have files that often hold secrets: %s. Leave them out with patterns in the file %s of the module, under a new tag",
		strings.Join(files[:min(len(files), 5)], ", "), source.ModuleIgnore))
}

// by is who published a version that comes from a tag.
func by(r Repository) string { return "repository " + r.Key.String() }

// shown is a URL without a user.
func shown(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if at := strings.LastIndexByte(rest, '@'); ok && at >= 0 && !strings.Contains(rest[:at], "/") {
		return scheme + "://" + rest[at+1:]
	}
	return url
}

// mostPack bounds what one tag takes of the disk, before it is unpacked.
const mostPack = 1 << 30

// limited refuses to take more bytes than it has left.
type limited struct {
	left int64
	url  string
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fault.New(fault.Invalid, blob.TooLarge, fmt.Errorf("the commit has more than %d MiB in the repository %s: keep the module in a repository of its own", int64(mostPack>>20), l.url))
	}
	return len(p), nil
}

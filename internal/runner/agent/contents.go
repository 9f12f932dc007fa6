package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// dirMirror is the mirror of providers beside the program of the agent.
const dirMirror = "mirror"

// contents finds what the job names. Paths that the controller gives are used as they
// are; where it gives none, they are beside this program.
type contents struct{ agent *agent }

var (
	_ runner.Contents     = (*contents)(nil)
	_ runner.Preparations = (*contents)(nil)
)

// Archive gets the archive of the run from the controller.
func (c *contents) Archive(ctx context.Context, digest string) (path string, err error) {
	path = filepath.Join(c.agent.options.Dir, fileArchive)
	if has(path, digest) {
		return path, nil
	}
	broken := 0
	return path, c.agent.retry(ctx, "archive not received yet", func(ctx context.Context) (final bool, err error) {
		return c.get(ctx, wire.Archive, fileArchive, digest, &broken)
	})
}

// preparedTries bounds how often a prepared directory is asked for. Without it the run has
// to initialise one, and nothing else.
const preparedTries = 5

// Prepared gets from the controller what an earlier run prepared.
func (c *contents) Prepared(ctx context.Context, digest string) (path string, err error) {
	path = filepath.Join(c.agent.options.Dir, fileGiven)
	if has(path, digest) {
		return path, nil
	}
	tries := 0
	err = c.agent.retry(ctx, "prepared directory not received yet", func(ctx context.Context) (final bool, err error) {
		tries++
		broken := tries
		final, err = c.get(ctx, wire.Prepared, fileGiven, digest, &broken)
		return final || tries >= preparedTries, err
	})
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		c.agent.log.Warn("prepared directory not received: the run initialises one", "err", err)
		return "", nil
	}
	return path, nil
}

// has reports whether a file was received already.
func has(path, digest string) bool {
	got, err := disk.Digest(path)
	return err == nil && got == digest
}

// get receives a file of a digest. It is final that the controller does not have it, and
// that it arrived broken too often.
func (c *contents) get(ctx context.Context, from, file, digest string, broken *int) (final bool, err error) {
	resp, done, err := c.agent.client.ask(ctx, request{method: http.MethodGet, path: from, limit: moveLimit})
	if err != nil {
		return is(err, http.StatusGone) || is(err, http.StatusUnprocessableEntity), err
	}
	defer done()
	in, err := disk.Receive(c.agent.options.Dir, file, resp.Body)
	if err != nil {
		return disk.IsNoSpace(err), err
	}
	defer in.Drop()
	if in.Digest() != digest {
		*broken++
		return *broken >= orderTries, fmt.Errorf("%s has the digest %s, and %s is asked for", file, in.Digest(), digest)
	}
	return true, in.Keep()
}

// Engine finds an engine and asks it for its version.
func (c *contents) Engine(ctx context.Context, asked string) (engine.Engine, error) {
	find := &engine.Finder{Run: sandbox.Output, Beside: beside(), Path: os.Getenv("PATH")}
	if path := c.agent.order.Host.Engine; path != "" {
		return find.Find(ctx, path)
	}
	e, err := find.Named(ctx, asked)
	if fault.Of(err) == fault.Missing {
		err = fmt.Errorf("the image of runs has no such engine: %w", err)
	}
	return e, err
}

// Platform is what the controller gives to all runs, with what this place has.
func (c *contents) Platform() (runner.Platform, error) {
	p := c.agent.order.Host.Platform
	if p.Mirror == "" {
		p.Mirror = c.agent.mirror()
	}
	if p.Mirror != c.agent.options.Providers {
		p.ProviderLock = nil // it is about the cache alone
	}
	if c.agent.options.Surroundings {
		return surroundings(p, c.agent.options)
	}
	return p, nil
}

// mirror is the directory of providers of this place: the cache, if there is one and the order
// says what may be in it, or the one beside this program; else empty.
func (a *agent) mirror() string {
	if dir := a.options.Providers; dir != "" && len(a.order.Host.ProviderLock) > 0 && isDir(dir) {
		return dir
	}
	if dir := filepath.Join(beside(), dirMirror); isDir(dir) {
		return dir
	}
	return ""
}

// useMirror makes a run take providers from the mirror of this place. The controller
// does not know what that has, and names none in the configuration of the engine.
func (a *agent) useMirror(job *runner.Job) error {
	dir := a.mirror()
	at := slices.IndexFunc(job.Files, func(f workdir.File) bool { return f.Path == runner.CLIConfig })
	if a.order.Host.Mirror != "" || at < 0 || dir == "" {
		return nil
	}
	providers, err := workdir.MirrorProviders(os.DirFS(dir))
	if err != nil {
		return err
	}
	if content, ok := workdir.FromMirror(job.Files[at].Content, workdir.Mirror{Dir: runner.MirrorInside, Providers: providers}); ok {
		job.Files[at].Content = content
	}
	return nil
}

// useRegistry makes the supervisor reach the registry by way of the controller, as this
// agent does: with the token of this place, which the cluster renews.
func (a *agent) useRegistry(job *runner.Job) {
	if job.Registry == nil {
		return
	}
	g := *job.Registry
	g.URL, g.Authority, g.TokenFile = a.client.base+wire.Registry, a.options.Authority, a.options.Token
	g.Header = map[string]string{wire.HeaderStack: a.client.stack, wire.HeaderProof: a.client.proof}
	job.Registry = &g
}

// useIdentity makes the supervisor get the tokens of the run in the same way.
func (a *agent) useIdentity(job *runner.Job) {
	if job.Identity == nil {
		return
	}
	d := *job.Identity
	d.URL, d.Authority, d.TokenFile = a.client.base+wire.Identity, a.options.Authority, a.options.Token
	d.Header = map[string]string{wire.HeaderStack: a.client.stack, wire.HeaderProof: a.client.proof}
	job.Identity = &d
}

// beside is the directory of this program.
func beside() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(exe)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

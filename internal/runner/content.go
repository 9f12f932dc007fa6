package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Content is bytes that a job names by their digest: a state, a saved plan, a
// lock file. In JSON it is its digest and its size; a transport carries the
// bytes beside the job, once and unchanged.
type Content struct {
	Digest string `json:"digest,omitempty"` // sha256:…; empty if there is none
	Size   int64  `json:"size,omitempty"`

	data []byte
}

// ContentOf names bytes, which must not change any more. Nil is no content.
func ContentOf(data []byte) Content {
	if data == nil {
		return Content{}
	}
	return Content{Digest: digest(data), Size: int64(len(data)), data: data}
}

// Bytes are the bytes that c names; nil without content.
func (c Content) Bytes() []byte { return c.data }

// Equal reports whether both name the same bytes.
func (c Content) Equal(o Content) bool { return c.Digest == o.Digest }

// Contents are what the job names by digest and a transport carries, in the
// order in which the local one does.
func (j *Job) Contents() []*Content { return []*Content{&j.State, &j.Plan, &j.LockFile} }

// Contents finds on this machine what jobs name by digest or by name.
type Contents interface {
	// Archive returns the path of the verified .tar.gz with a digest. The file
	// must stay until the run has unpacked it.
	Archive(ctx context.Context, digest string) (path string, err error)
	// Engine returns the engine that the stack asked for.
	Engine(ctx context.Context, asked string) (engine.Engine, error)
	// Platform returns what all runs have, as the operator decided.
	Platform() (Platform, error)
}

// Platform is what all runs of a machine have, as its operator decided. It is no
// input of a stack: another one is no other plan.
type Platform struct {
	Mirror     string `json:"mirror,omitempty"`     // directory of providers, read-only in the sandbox
	MirrorOnly bool   `json:"mirrorOnly,omitempty"` // no provider comes from elsewhere

	// ProviderLock is a dependency lock file with the packages that the mirror may have. With it
	// no package of the mirror is used that neither it nor the lock file of the module names:
	// the mirror is then a cache, and others may have written it.
	ProviderLock []byte `json:"providerLock,omitempty"`

	Readable  []string          `json:"readable,omitempty"`  // files and directories that the run may read, at the same path
	Writable  []string          `json:"writable,omitempty"`  // directories that the run may write, at the same path
	OwnShm    bool              `json:"ownShm,omitempty"`    // /dev/shm is that of a container for this run alone
	Env       map[string]string `json:"env,omitempty"`       // environment; what a stack sets comes before it
	Authority []byte            `json:"authority,omitempty"` // certificates in PEM that runs trust, and no others
	Settable  []string          `json:"settable,omitempty"`  // reserved names that stacks may set

	Backends map[string]string `json:"backends,omitempty"` // programs of the operator that are backends, by name
}

// Host is where this machine has what a job names.
type Host struct {
	Archive  string `json:"archive,omitempty"`  // path of the .tar.gz
	Engine   string `json:"engine,omitempty"`   // path of the program
	Prepared string `json:"prepared,omitempty"` // path of what Job.Prepared names; empty if there is nothing
	Platform
}

// Preparations are Contents that have what an earlier run prepared, too.
type Preparations interface {
	// Prepared returns the path of the verified file that Job.Prepared names. It is
	// empty if the file is not to be had: the run then initialises its directory.
	Prepared(ctx context.Context, digest string) (path string, err error)
}

// Find finds what a job names. Without contents it finds nothing, which is enough for a
// job that names nothing; what is missing the supervisor finds out.
func Find(ctx context.Context, in Contents, job Job) (h Host, err error) {
	if in == nil {
		return h, nil
	}
	if h.Platform, err = in.Platform(); err != nil {
		return h, err
	}
	missing := func(what string, err error) error {
		return fault.New(fault.Missing, ContentMissing, fmt.Errorf("the runner does not have %s: %w", what, err))
	}
	if job.Tree.Archive != "" {
		path, err := in.Archive(ctx, job.Tree.Archive)
		if err != nil {
			return h, missing("the archive "+job.Tree.Archive, err)
		}
		h.Archive = path
	}
	if job.Engine.Name != "" {
		e, err := in.Engine(ctx, job.Engine.Asked)
		if err != nil {
			return h, err
		}
		if got := (Engine{Name: e.Name, Version: e.Version}).String(); got != job.Engine.String() {
			return h, fault.New(fault.Later, ContentMissing, fmt.Errorf("the engine is %s now and no longer %s", got, job.Engine))
		}
		h.Engine = e.Path
	}
	if p, ok := in.(Preparations); ok && job.Prepared.Digest != "" {
		if h.Prepared, err = p.Prepared(ctx, job.Prepared.Digest); err != nil {
			return h, missing("the prepared directory "+job.Prepared.Digest, err)
		}
	}
	return h, nil
}

// Order is what a runner sends to a supervisor over its standard input: this in JSON,
// then the bytes of the contents, one after another. It holds secrets in clear.
type Order struct {
	Version int  `json:"version"` // JobVersion of the runner
	Job     Job  `json:"job"`
	Host    Host `json:"host"`
	Asks    bool `json:"asks,omitempty"` // see Config
}

// Write sends the order.
func (o *Order) Write(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(o); err != nil {
		return fmt.Errorf("sending the job: %w", err)
	}
	for _, c := range o.Job.Contents() {
		if _, err := w.Write(c.data); err != nil {
			return fmt.Errorf("sending %s: %w", c.Digest, err)
		}
	}
	return nil
}

// ReadOrder is the other side of Write. It compares each digest.
func ReadOrder(r io.Reader) (Order, error) {
	var o Order
	dec := json.NewDecoder(io.LimitReader(r, maxJob))
	if err := dec.Decode(&o); err != nil {
		return o, fmt.Errorf("reading the job: %w", err)
	}
	if err := o.understood(); err != nil {
		return o, err
	}
	rest := io.MultiReader(dec.Buffered(), r)
	if _, err := io.ReadFull(rest, make([]byte, len("\n"))); err != nil {
		return o, fmt.Errorf("reading the job: %w", err)
	}
	for _, c := range o.Job.Contents() {
		if c.Digest == "" {
			continue
		}
		if c.Size < 0 || c.Size > maxContent {
			return o, fmt.Errorf("%s has %d bytes, more than the %d allowed", c.Digest, c.Size, int64(maxContent))
		}
		c.data = make([]byte, c.Size)
		if _, err := io.ReadFull(rest, c.data); err != nil {
			return o, fmt.Errorf("reading %s: %w", c.Digest, err)
		}
		if got := digest(c.data); got != c.Digest {
			return o, fmt.Errorf("the content %s has the digest %s", c.Digest, got)
		}
	}
	return o, nil
}

// The bounds of an order.
const (
	maxJob     = 1 << 30 // bytes of the job without its contents: generated files, above all
	maxContent = maxPlan // the largest content is a saved plan
)

func digest(data []byte) string { return stack.Sum(data) }

// secrets are the passwords in the environment that the operator sets: those of
// proxies are part of their addresses, which may lack a scheme. Other values are
// not hidden.
func (p Platform) secrets() []string {
	var found []string
	for _, value := range p.Env {
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			u, err = url.Parse("http://" + value)
		}
		if err != nil || u.User == nil {
			continue
		}
		if password, ok := u.User.Password(); ok && password != "" {
			found = append(found, password, u.User.String())
		}
	}
	return found
}

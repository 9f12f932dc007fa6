package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// RegistryOptions bound a registry. A zero field means its default.
type RegistryOptions struct {
	BlobBytes     int64            // of one blob; 1 GiB
	ManifestBytes int64            // of one manifest; 4 MiB
	Uploads       int              // of one namespace under way at once; 64
	UploadAge     time.Duration    // after which an abandoned upload is dropped; 1 hour
	Now           func() time.Time // time.Now if nil

	// Room gives each request that writes its room on the disk. It fails with a fault of the
	// kind Later if there is none. Nil bounds nothing.
	Room func() (RegistryClaim, error)
	// Quota bounds what a namespace has; nil if nothing does.
	Quota func(ctx context.Context, namespace string) (RegistryQuota, error)

	// Namespace is the namespace that has a name now. What a former one of its name left is
	// then not for its users. Nil makes no difference between them.
	Namespace func(ctx context.Context, name string) (RegistryNamespace, error)
	// Aside is told that the repositories that a former namespace left have another first part
	// in their names from now on; nil tells nothing.
	Aside func(namespace, now string)
}

// Registry is an OCI distribution registry in a directory:
//
//	repos/<name>/_blobs/<hex>       content, by its SHA-256
//	repos/<name>/_manifests/<hex>   likewise
//	repos/<name>/_types/<hex>       media type of the manifest
//	repos/<name>/_tags/<tag>        digest of a manifest
//	repos/<namespace>/_namespace    UID of the namespace
//	uploads/<namespace>/<id>        what an upload has sent so far
//
// The namespace of a repository is the first part of its name.
//
// No part of a repository's name begins with an underscore, so the names of
// repositories and of their content cannot collide. Every file is complete: it was
// written aside, synced and renamed. A blob belongs to its repository: a digest does
// not give access to other repositories.
type Registry struct {
	dir string
	RegistryOptions

	ledger *ledger

	mu   sync.Mutex
	busy map[string]bool // uploads that a request is writing to

	owning sync.Mutex // held while repositories are found to be those of a namespace
	places sync.Mutex // held while uploads are counted, and one begins
	swept  time.Time  // when those of all namespaces were looked at
}

// NewRegistry serves an OCI registry that keeps everything in dir, below /v2/.
// It supports pull, push in one piece and in chunks, mounts, tag lists and deletion.
// It checks no permissions: the handler around it does.
func NewRegistry(dir string, o RegistryOptions) (*Registry, error) {
	if o.BlobBytes == 0 {
		o.BlobBytes = 1 << 30
	}
	if o.ManifestBytes == 0 {
		o.ManifestBytes = 4 << 20
	}
	if o.Uploads == 0 {
		o.Uploads = 64
	}
	if o.UploadAge == 0 {
		o.UploadAge = time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for _, sub := range []string{"repos", "uploads"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("opening the registry: %w", err)
		}
	}
	l := &ledger{dir: dir, room: o.Room, quota: o.Quota, now: o.Now, of: map[string]*balance{}}
	return &Registry{dir: dir, RegistryOptions: o, ledger: l, busy: map[string]bool{}}, nil
}

// The grammars of the distribution specification.
var (
	repoGrammar   = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagGrammar    = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	digestGrammar = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)
	uploadGrammar = regexp.MustCompile(`^[a-z2-7]{26}$`)
)

// route is a request as the registry understands it.
type route struct {
	repo string // checked
	rest string // not checked
}

// Pushed reports whether a repository has a manifest: users pushed it, and did not delete
// everything in it.
func (g *Registry) Pushed(repository string) (bool, error) {
	if len(repository) > 255 || !repoGrammar.MatchString(repository) {
		return false, nil
	}
	dir, err := os.Open(g.at(repository, "_manifests"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	if _, err := dir.ReadDir(1); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	} else {
		return err == nil, nil
	}
}

// ServeHTTP implements http.Handler.
func (g *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := g.serve(w, r); err != nil {
		answer(w, err)
	}
}

func (g *Registry) serve(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == "/v2/" || r.URL.Path == "/v2" {
		w.Header().Set("Content-Type", "application/json")
		_, err := w.Write([]byte("{}"))
		return err
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if !ok {
		return refusal{http.StatusNotFound, "UNSUPPORTED", "there is nothing but /v2/"}
	}
	if path == "_catalog" {
		return owners{g}.catalog(w, r)
	}
	// The name comes first and may hold any of the words that follow it, so
	// the last of them counts.
	var to route
	var handle func(http.ResponseWriter, *http.Request, route) error
	last := -1
	for _, kind := range []struct {
		word   string
		handle func(http.ResponseWriter, *http.Request, route) error
	}{
		{"/blobs/uploads/", g.upload}, // before /blobs/, which is found at the same place
		{"/blobs/", g.blob},
		{"/manifests/", g.manifest},
		{"/tags/", g.tags},
	} {
		if at := strings.LastIndex(path, kind.word); at > last {
			last, handle, to = at, kind.handle, route{repo: path[:at], rest: path[at+len(kind.word):]}
		}
	}
	if handle == nil {
		return refusal{http.StatusNotFound, "UNSUPPORTED", "the path is not one of a registry"}
	}
	if len(to.repo) > 255 || !repoGrammar.MatchString(to.repo) {
		return refusal{http.StatusBadRequest, "NAME_INVALID", "the name of the repository is not valid"}
	}
	if err := (owners{g}).own(r.Context(), to.repo, r.Method != http.MethodGet && r.Method != http.MethodHead); err != nil {
		return err
	}
	return handle(w, r, to)
}

// at returns the path of something in a repository. Its arguments are checked.
func (g *Registry) at(repo string, parts ...string) string {
	return filepath.Join(append([]string{g.dir, "repos", filepath.FromSlash(repo)}, parts...)...)
}

// refusal is an answer that tells the client what it did wrong.
type refusal struct {
	status        int
	code, message string
}

func (r refusal) Error() string { return r.message }

func answer(w http.ResponseWriter, err error) {
	var r refusal
	switch {
	case errors.As(err, &r):
	case fault.Of(err) == fault.Later:
		r = refusal{http.StatusServiceUnavailable, "UNAVAILABLE", Message(err)}
	default:
		// The disk's own words name paths on this machine.
		r = refusal{http.StatusInternalServerError, "UNKNOWN", "the registry cannot do that at the moment"}
	}
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	// There is no reader when this fails.
	_ = json.NewEncoder(w).Encode(map[string][]problem{"errors": {{r.code, r.message}}})
}

func notAllowed(w http.ResponseWriter, methods string) error {
	w.Header().Set("Allow", methods)
	return refusal{http.StatusMethodNotAllowed, "UNSUPPORTED", "the method is not allowed here"}
}

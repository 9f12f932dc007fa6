package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// Artifact is what the status of a source object says of its artifact.
type Artifact struct {
	URL      string
	Revision string
	Digest   string // sha256:…, sha384:… or sha512:…
	Size     int64  // 0 if it does not say

	At time.Time // when it was stored; zero if the source does not say

	Directory string // in it that the URL of the source names; empty for its root
	Origin    string // the URL that it is certainly from; empty if that is not certain
}

// Cache holds artifacts by digest. Nothing leaves it that was not compared
// with its digest at that moment.
type Cache struct {
	dir string
	out *outbound.Client
	max int64

	downloads cache.Flight[string, struct{}] // by digest

	using sync.Mutex // held while a file is marked as used, and while Prune removes one
}

const (
	reasonCorrupt   = "ArtifactCorrupt"
	downloadTimeout = 2 * time.Minute
)

// NewCache returns the Cache in dir, which is made if need be; artifacts of
// more than most bytes are refused.
func NewCache(dir string, out *outbound.Client, most int64) (*Cache, error) {
	tmp := filepath.Join(dir, tmpDir)
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return nil, fmt.Errorf("opening the artifact cache: %w", err)
	}
	return &Cache{dir: dir, out: out, max: most}, nil
}

// Get returns the path of a file that holds exactly the artifact a. Callers
// that want the same artifact at the same time share one download; one of them
// giving up does not disturb the others.
func (c *Cache) Get(ctx context.Context, a Artifact) (string, error) {
	algorithm, sum, err := parseDigest(a.Digest)
	if err != nil {
		return "", err
	}
	target := c.path(algorithm, sum)
	if err := c.used(target); err == nil && compare(target, algorithm, sum) == nil {
		return target, nil
	}
	_, err = c.downloads.Do(ctx, a.Digest, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		return struct{}{}, c.download(ctx, a, target)
	})
	if err != nil {
		return "", fmt.Errorf("fetching the artifact of %q: %w", a.Revision, err)
	}
	return target, nil
}

// Put keeps what it reads if that has the digest.
func (c *Cache) Put(digest string, from io.Reader) error {
	algorithm, sum, err := parseDigest(digest)
	if err != nil {
		return err
	}
	return c.keep(from, Artifact{Digest: digest}, c.path(algorithm, sum))
}

// Path returns the path of an artifact that Get has fetched, or Put was given.
func (c *Cache) Path(digest string) (string, error) {
	algorithm, sum, err := parseDigest(digest)
	if err != nil {
		return "", err
	}
	path := c.path(algorithm, sum)
	return path, c.used(path)
}

// used marks a file as used now, so that Prune leaves it: the caller is going to open it.
// The error is that of a file that is not there.
func (c *Cache) used(path string) error {
	c.using.Lock()
	defer c.using.Unlock()
	err := os.Chtimes(path, time.Time{}, time.Now())
	if errors.Is(err, fs.ErrPermission) { // the file is of the user that this program had before
		_, err = os.Stat(path)
	}
	return err
}

func (c *Cache) path(algorithm string, sum []byte) string {
	return filepath.Join(c.dir, algorithm, hex.EncodeToString(sum)+".tar.gz")
}

func (c *Cache) download(ctx context.Context, a Artifact, target string) error {
	if a.Size > c.max {
		return invalid(outbound.ReasonTooLarge, "it is larger than %d bytes", c.max)
	}
	// The digest makes http as good as https here, and Flux serves http only.
	client, err := c.out.HTTP(outbound.Options{PlainHTTP: true, MaxBytes: c.max})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return invalid(ReasonURL, "reading the artifact's URL: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return missing(ReasonArtifact, "it does not exist any more")
	default:
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	return c.keep(resp.Body, a, target)
}

// keep writes what it reads to target if it has the artifact's digest.
func (c *Cache) keep(body io.Reader, a Artifact, target string) error {
	algorithm, sum, err := parseDigest(a.Digest)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(c.dir, tmpDir), "get-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if a.Size > 0 {
		body = io.LimitReader(body, a.Size+1) // one more than right is wrong enough
	}
	h := newHash(algorithm)
	if _, err := io.Copy(io.MultiWriter(f, h), body); err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), sum) {
		return fault.New(fault.Broken, reasonCorrupt, fmt.Errorf("its digest is %s:%x, not %s", algorithm, h.Sum(nil), a.Digest))
	}
	return publish(f, target)
}

// Prune removes artifacts that neither Get nor Path returned since the given time, and that
// keep does not want by digest. A run that starts now may have been given a path a moment ago,
// so before is best some hours past.
func (c *Cache) Prune(before time.Time, keep func(digest string) bool) error {
	return filepath.WalkDir(c.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		digest := filepath.Base(filepath.Dir(p)) + ":" + strings.TrimSuffix(d.Name(), ".tar.gz")
		if keep(digest) {
			return nil
		}
		return c.drop(p, before)
	})
}

// drop removes a file that was not used since a time.
func (c *Cache) drop(path string, before time.Time) error {
	c.using.Lock()
	defer c.using.Unlock()
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) { // a download that ended meanwhile
		return nil
	}
	if err != nil || info.ModTime().After(before) {
		return err
	}
	return os.Remove(path)
}

func newHash(algorithm string) hash.Hash {
	switch algorithm {
	case "sha256":
		return sha256.New()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	default:
		return nil
	}
}

func parseDigest(digest string) (algorithm string, sum []byte, err error) {
	algorithm, text, _ := strings.Cut(digest, ":")
	h := newHash(algorithm)
	if h == nil {
		return "", nil, invalid(ReasonArtifact, "digests like %q are not supported", digest)
	}
	if sum, err = hex.DecodeString(text); err != nil || len(sum) != h.Size() {
		return "", nil, invalid(ReasonArtifact, "%q is no digest", digest)
	}
	return algorithm, sum, nil
}

// compare returns nil if the file at path has the digest.
func compare(path, algorithm string, sum []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := newHash(algorithm)
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), sum) {
		return errors.New("the file has another digest")
	}
	return nil
}

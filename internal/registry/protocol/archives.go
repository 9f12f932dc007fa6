package protocol

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/registry"
)

// Signer signs addresses of archives: clients fetch these without their token.
type Signer interface {
	// Sign returns the parameters by which an archive may be fetched for a time.
	Sign(key string, life time.Duration) url.Values
	// Check refuses parameters that were not signed for a key, or that have expired.
	Check(key string, given url.Values) error
}

// Opener opens archives by key, for requests with a signed address. The tenant is the
// one that got the address.
type Opener interface {
	OpenArchive(ctx context.Context, tenant, key string) (registry.Archive, error)
}

// The parameters of an address that the signature covers.
const (
	paramSum    = "sha256"
	paramTenant = "for"
)

// Link is an archive that a caller may fetch.
type Link struct {
	Key    string
	SHA256 string // in hex; empty if it is not known
	Tenant string
}

// signed is the text that a signature is of.
func (l Link) signed() string { return l.Key + "\x00" + l.SHA256 + "\x00" + l.Tenant }

// URL is the signed address of an archive, relative to the address of the request: it is
// right behind a proxy that has the registry below a path of its own.
func (s *Server) URL(r *http.Request, l Link) string {
	_, rest, _ := strings.Cut(r.URL.Path, prefix)
	return strings.Repeat("../", strings.Count(rest, "/")) + s.signed(l)
}

// Path is the signed address of an archive as a path of this server, for its pages.
func (s *Server) Path(l Link) string { return prefix + s.signed(l) }

func (s *Server) signed(l Link) string {
	q := s.Signer.Sign(l.signed(), s.Life)
	if l.SHA256 != "" {
		q.Set(paramSum, l.SHA256)
	}
	if l.Tenant != "" {
		q.Set(paramTenant, l.Tenant)
	}
	return "archives/" + l.Key + "?" + q.Encode()
}

// archive sends an archive, whole or a range of it.
func (s *Server) archive(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	l := Link{Key: r.PathValue("key"), SHA256: q.Get(paramSum), Tenant: q.Get(paramTenant)}
	err := s.Signer.Check(l.signed(), q)
	var a registry.Archive
	if err == nil {
		a, err = s.open(r.Context(), l)
	}
	if err != nil {
		s.answer(w, r, err)
		return
	}
	sent, err := Send(w, r, a, l.SHA256)
	if s.Served != nil && sent > 0 {
		s.Served(l.Tenant, l.Key, sent)
	}
	if err != nil {
		s.Log.Error("archive not sent", "key", l.Key, "bytes", sent, "err", err)
	}
}

// Send sends an archive, whole or a range of it, and closes it. A request for several ranges
// gets the whole, since each range would be a request to the bucket. Send returns how many bytes
// went out, and why the archive could not be read; a client that leaves is no error. The
// SHA-256 is in hex, and empty if it is not known.
func Send(w http.ResponseWriter, r *http.Request, a registry.Archive, sha256 string) (int64, error) {
	content := &observed{ReadSeekCloser: a}
	defer content.Close()
	if sha256 != "" {
		w.Header().Set("ETag", `"`+sha256+`"`)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", mediaType(a.Name))
	}
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("Range"), ",") {
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	sent := &counted{ResponseWriter: w}
	http.ServeContent(sent, r, "", a.Modified, content)
	if r.Context().Err() != nil {
		return sent.bytes, nil
	}
	return sent.bytes, content.failed
}

func (s *Server) open(ctx context.Context, l Link) (registry.Archive, error) {
	for prefix, o := range s.Openers {
		if strings.HasPrefix(l.Key, prefix) {
			return o.OpenArchive(ctx, l.Tenant, l.Key)
		}
	}
	return s.Registry.OpenArchive(ctx, l.Key)
}

// mediaType is that of an archive. Clients go by its name, or by its first bytes.
func mediaType(file string) string {
	switch {
	case strings.HasSuffix(file, ".zip"):
		return "application/zip"
	case strings.HasSuffix(file, ".gz"), strings.HasSuffix(file, ".tgz"):
		return "application/gzip"
	default:
		return "application/octet-stream"
	}
}

// observed remembers why reading failed: http.ServeContent does not say.
type observed struct {
	io.ReadSeekCloser
	failed error
}

func (o *observed) Read(p []byte) (int, error) {
	n, err := o.ReadSeekCloser.Read(p)
	if err != nil && err != io.EOF {
		o.failed = err
	}
	return n, err
}

// counted counts the bytes of a body.
type counted struct {
	http.ResponseWriter
	bytes int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

package source

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func blobUnknown() error {
	return refusal{http.StatusNotFound, "BLOB_UNKNOWN", "the repository has no such blob"}
}

func digestInvalid() error {
	return refusal{http.StatusBadRequest, "DIGEST_INVALID", "the digest is not a SHA-256, or not that of the content"}
}

// hexOf returns the hexadecimal part of a valid digest.
func hexOf(digest string) (string, error) {
	if !digestGrammar.MatchString(digest) {
		return "", digestInvalid()
	}
	return strings.TrimPrefix(digest, "sha256:"), nil
}

func (g *Registry) blob(w http.ResponseWriter, r *http.Request, to route) error {
	sum, err := hexOf(to.rest)
	if err != nil {
		return err
	}
	path := g.at(to.repo, "_blobs", sum)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		w.Header().Set("Content-Type", "application/octet-stream")
		return serveFile(w, r, path, to.rest, blobUnknown())
	case http.MethodDelete:
		if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			return blobUnknown()
		} else if err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	return notAllowed(w, "GET, HEAD, DELETE")
}

// serveFile answers with content that never changes under its digest.
func serveFile(w http.ResponseWriter, r *http.Request, path, digest string, unknown error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return unknown
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// upload serves /v2/<name>/blobs/uploads/[<id>].
func (g *Registry) upload(w http.ResponseWriter, r *http.Request, to route) error {
	if to.rest == "" {
		if r.Method != http.MethodPost {
			return notAllowed(w, "POST")
		}
		return g.begin(w, r, to)
	}
	if !uploadGrammar.MatchString(to.rest) {
		return uploadUnknown()
	}
	release, err := g.hold(to.rest)
	if err != nil {
		return err
	}
	defer release()
	switch r.Method {
	case http.MethodGet:
		return g.progress(w, to, http.StatusNoContent)
	case http.MethodPatch:
		if err := g.append(r, to.rest); err != nil {
			return err
		}
		return g.progress(w, to, http.StatusAccepted)
	case http.MethodPut:
		return g.finish(w, r, to)
	case http.MethodDelete:
		if err := os.Remove(g.uploadPath(to.rest)); err != nil {
			return uploadUnknown()
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return notAllowed(w, "GET, PATCH, PUT, DELETE")
}

func uploadUnknown() error {
	return refusal{http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", "there is no such upload"}
}

func (g *Registry) uploadPath(id string) string { return filepath.Join(g.dir, "uploads", id) }

// hold keeps other requests from writing to the same upload.
func (g *Registry) hold(id string) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[id] {
		return nil, refusal{http.StatusConflict, "BLOB_UPLOAD_INVALID", "another request is writing to this upload"}
	}
	g.busy[id] = true
	return func() {
		g.mu.Lock()
		delete(g.busy, id)
		g.mu.Unlock()
	}, nil
}

// begin starts an upload, or finishes it at once: by mounting a blob that
// another repository has, or because the request brings it.
func (g *Registry) begin(w http.ResponseWriter, r *http.Request, to route) error {
	query := r.URL.Query()
	if from := query.Get("from"); query.Get("mount") != "" && repoGrammar.MatchString(from) && sameOwner(from, to.repo) {
		sum, err := hexOf(query.Get("mount"))
		if err != nil {
			return err
		}
		if err := g.mount(from, to.repo, sum); err == nil {
			return created(w, to.repo, "blobs", query.Get("mount"))
		}
	}
	if err := g.makeRoom(); err != nil {
		return err
	}
	id := strings.ToLower(rand.Text())
	if !uploadGrammar.MatchString(id) {
		return fmt.Errorf("making an upload: unexpected form of random text")
	}
	f, err := os.OpenFile(g.uploadPath(id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	to.rest = id
	if query.Get("digest") != "" {
		return g.finish(w, r, to)
	}
	return g.progress(w, to, http.StatusAccepted)
}

// sameOwner reports whether two repositories belong to the same namespace, the
// first part of their names. Who may write to one has not been asked whether he
// may read the other, and a digest is no secret: it stands in the status of
// sources and stacks.
func sameOwner(a, b string) bool {
	a, _, _ = strings.Cut(a, "/")
	b, _, _ = strings.Cut(b, "/")
	return a == b
}

func (g *Registry) mount(from, into, sum string) error {
	if err := os.MkdirAll(g.at(into, "_blobs"), 0o700); err != nil {
		return err
	}
	err := os.Link(g.at(from, "_blobs", sum), g.at(into, "_blobs", sum))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(g.at(into, "_blobs"))
}

// makeRoom drops abandoned uploads, and refuses one too many.
func (g *Registry) makeRoom() error {
	entries, err := os.ReadDir(filepath.Join(g.dir, "uploads"))
	if err != nil {
		return err
	}
	left := 0
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && g.Now().Sub(info.ModTime()) > g.UploadAge {
			err = os.Remove(g.uploadPath(e.Name()))
		} else if err == nil {
			left++
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if left >= g.Uploads {
		return refusal{http.StatusTooManyRequests, "TOOMANYREQUESTS", "too many uploads are under way"}
	}
	return nil
}

// append adds the body of r to an upload, exactly where the upload ends.
func (g *Registry) append(r *http.Request, id string) (err error) {
	f, err := os.OpenFile(g.uploadPath(id), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return uploadUnknown()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if span := r.Header.Get("Content-Range"); span != "" {
		start, _, _ := strings.Cut(strings.TrimPrefix(span, "bytes "), "-")
		if n, err := strconv.ParseInt(start, 10, 64); err != nil || n != size {
			return refusal{http.StatusRequestedRangeNotSatisfiable, "BLOB_UPLOAD_INVALID", "the chunk does not begin where the upload ends"}
		}
	}
	n, err := io.Copy(f, io.LimitReader(r.Body, g.BlobBytes-size+1))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	if tooLarge || err == nil && size+n > g.BlobBytes {
		err = refusal{http.StatusRequestEntityTooLarge, "SIZE_INVALID", fmt.Sprintf("a blob has at most %d bytes", g.BlobBytes)}
	}
	if err != nil {
		// A chunk that did not arrive whole is as if it had not been sent.
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}

func (g *Registry) progress(w http.ResponseWriter, to route, status int) error {
	info, err := os.Stat(g.uploadPath(to.rest))
	if err != nil {
		return uploadUnknown()
	}
	w.Header().Set("Location", "/v2/"+to.repo+"/blobs/uploads/"+to.rest)
	w.Header().Set("Docker-Upload-UUID", to.rest)
	w.Header().Set("Range", fmt.Sprintf("0-%d", max(info.Size()-1, 0)))
	w.WriteHeader(status)
	return nil
}

// finish takes the last of an upload and makes it a blob if it has the digest.
func (g *Registry) finish(w http.ResponseWriter, r *http.Request, to route) error {
	digest := r.URL.Query().Get("digest")
	sum, err := hexOf(digest)
	if err != nil {
		return err
	}
	if err := g.append(r, to.rest); err != nil {
		return err
	}
	f, err := os.OpenFile(g.uploadPath(to.rest), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return errors.Join(digestInvalid(), os.Remove(f.Name()))
	}
	if err := publish(f, g.at(to.repo, "_blobs", sum)); err != nil {
		return err
	}
	return created(w, to.repo, "blobs", digest)
}

func created(w http.ResponseWriter, repo, kind, digest string) error {
	w.Header().Set("Location", "/v2/"+repo+"/"+kind+"/"+digest)
	w.Header().Set("Docker-Content-Digest", digest)
	w.WriteHeader(http.StatusCreated)
	return nil
}

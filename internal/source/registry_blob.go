package source

import (
	"context"
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
	"time"
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
		if err := g.ledger.remove(ownerOf(to.repo), path); errors.Is(err, fs.ErrNotExist) {
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
		if err := g.append(r, to); err != nil {
			return err
		}
		return g.progress(w, to, http.StatusAccepted)
	case http.MethodPut:
		return g.finish(w, r, to)
	case http.MethodDelete:
		if err := g.ledger.remove(ownerOf(to.repo), g.uploadPath(to)); err != nil {
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

// uploadPath is the file of an upload. One of another namespace has none there.
func (g *Registry) uploadPath(to route) string {
	return filepath.Join(g.dir, "uploads", ownerOf(to.repo), to.rest)
}

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
		if err := g.mount(r.Context(), from, to.repo, sum); err == nil {
			return created(w, to.repo, "blobs", query.Get("mount"))
		}
	}
	to.rest = strings.ToLower(rand.Text())
	if !uploadGrammar.MatchString(to.rest) {
		return fmt.Errorf("making an upload: unexpected form of random text")
	}
	if err := g.place(r.Context(), to); err != nil {
		return err
	}
	if query.Get("digest") != "" {
		err := g.finish(w, r, to)
		if err != nil { // the client does not learn where to go on
			err = errors.Join(err, absentIsNone(g.ledger.remove(ownerOf(to.repo), g.uploadPath(to))))
		}
		return err
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

func (g *Registry) mount(ctx context.Context, from, into, sum string) error {
	target := g.at(into, "_blobs", sum)
	if _, err := os.Lstat(g.at(from, "_blobs", sum)); err != nil {
		return err
	}
	a, err := g.ledger.open(ctx, into)
	if err != nil {
		return err
	}
	defer a.close()
	more, err := directories(target)
	if err == nil {
		err = a.take(more + leastCost)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(target), 0o700)
	}
	if err == nil {
		err = os.Link(g.at(from, "_blobs", sum), target)
	}
	if err != nil {
		a.undo()
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return syncDir(filepath.Dir(target))
}

// place makes the file of an upload, unless its namespace has too many under way.
func (g *Registry) place(ctx context.Context, to route) error {
	owner := ownerOf(to.repo)
	a, err := g.ledger.open(ctx, to.repo)
	if err != nil {
		return err
	}
	defer a.close()
	g.places.Lock()
	defer g.places.Unlock()
	left, err := g.sweep(owner)
	if err != nil {
		return err
	}
	if left >= g.Uploads {
		return refusal{http.StatusTooManyRequests, "TOOMANYREQUESTS", fmt.Sprintf("%d uploads of the namespace %s are under way: finish or cancel some of them, or wait: those that get no content for %s are dropped", left, owner, g.UploadAge)}
	}
	more, err := directories(g.uploadPath(to))
	if err == nil {
		err = a.take(more + leastCost)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(g.uploadPath(to)), 0o700)
	}
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(g.uploadPath(to), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		a.undo()
	}
	return err
}

// sweepEvery is how often uploads of all namespaces are looked at.
const sweepEvery = time.Minute

// sweep drops abandoned uploads, and counts those of a namespace that are under way.
func (g *Registry) sweep(owner string) (left int, err error) {
	if now := g.Now(); now.Sub(g.swept) >= sweepEvery || now.Before(g.swept) {
		all, err := os.ReadDir(filepath.Join(g.dir, "uploads"))
		if err != nil {
			return 0, err
		}
		for _, e := range all {
			if e.Name() == owner {
				continue
			}
			if _, err := g.dropAbandoned(e.Name()); err != nil {
				return 0, err
			}
		}
		g.swept = now
	}
	return g.dropAbandoned(owner)
}

// dropAbandoned drops abandoned uploads of a namespace, and counts the others. A file is one of
// an earlier version.
func (g *Registry) dropAbandoned(owner string) (left int, err error) {
	dir := filepath.Join(g.dir, "uploads", owner)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return absentIsNone(err)
		}
		info, err := e.Info()
		if err == nil && g.Now().Sub(info.ModTime()) > g.UploadAge {
			err = g.ledger.remove(owner, path)
		} else if err == nil && uploadGrammar.MatchString(e.Name()) {
			left++
		}
		return absentIsNone(err)
	})
	return left, err
}

func absentIsNone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// append adds the body of r to an upload, exactly where the upload ends.
func (g *Registry) append(r *http.Request, to route) (err error) {
	f, err := os.OpenFile(g.uploadPath(to), os.O_WRONLY, 0)
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
	a, err := g.ledger.open(r.Context(), to.repo)
	if err != nil {
		return err
	}
	defer a.close()
	n, err := io.Copy(a.writer(f, size), io.LimitReader(r.Body, g.BlobBytes-size+1))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	if tooLarge || err == nil && size+n > g.BlobBytes {
		err = refusal{http.StatusRequestEntityTooLarge, "SIZE_INVALID", fmt.Sprintf("a blob has at most %d bytes", g.BlobBytes)}
	}
	if err != nil {
		// A chunk that did not arrive whole is as if it had not been sent.
		err = errors.Join(err, f.Truncate(size))
		a.undo()
		return err
	}
	return nil
}

func (g *Registry) progress(w http.ResponseWriter, to route, status int) error {
	info, err := os.Stat(g.uploadPath(to))
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
	if err := g.append(r, to); err != nil {
		return err
	}
	owner := ownerOf(to.repo)
	f, err := os.OpenFile(g.uploadPath(to), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return errors.Join(digestInvalid(), g.ledger.remove(owner, f.Name()))
	}
	there, err := g.ledger.publish(r.Context(), to.repo, f, g.at(to.repo, "_blobs", sum))
	if err != nil {
		return err
	}
	if there {
		g.ledger.give(owner, cost(size))
	}
	return created(w, to.repo, "blobs", digest)
}

func created(w http.ResponseWriter, repo, kind, digest string) error {
	w.Header().Set("Location", "/v2/"+repo+"/"+kind+"/"+digest)
	w.Header().Set("Docker-Content-Digest", digest)
	w.WriteHeader(http.StatusCreated)
	return nil
}

package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// Git LFS keeps the content of a file beside the repository, and a pointer to it in
// the tree. A pointer must never be taken for the content. Terrier fetches what
// pointers of a git source point to, with the protocol of batches over https:
//
//	POST URL.git/info/lfs/objects/batch   the objects that are wanted  → an address for each
//	GET  address                          with the headers that came with it
//
// The credentials of the source go to the source's own origin alone. Another host
// gets the headers that the server's answer holds for it. An address over http is
// not followed if the source is read over https. A pointer that is left out of the
// artifact is not fetched.

// Bounds of what is fetched for one commit, beside those of the tree.
const (
	maxLFSObjects = 1000
	maxLFSBatch   = 100
	maxLFSAnswer  = 8 << 20
	maxLFSHeaders = 32
)

// maxPointer is how large a pointer may be.
const maxPointer = 1024

const (
	lfsVersion = "version https://git-lfs.github.com/spec/v1\n"
	lfsMedia   = "application/vnd.git-lfs+json"
)

// Pointer is what a file of Git LFS holds in place of its content.
type Pointer struct {
	OID  string // sha256 in hexadecimal
	Size int64
}

// ParsePointer reads a file that may be a pointer of Git LFS.
func ParsePointer(content []byte) (Pointer, bool) {
	text, ok := strings.CutPrefix(string(content), lfsVersion)
	if !ok || len(content) > maxPointer {
		return Pointer{}, false
	}
	var p Pointer
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "oid":
			p.OID, ok = strings.CutPrefix(value, "sha256:")
			if raw, err := hex.DecodeString(p.OID); !ok || err != nil || len(raw) != sha256.Size {
				return Pointer{}, false
			}
		case "size":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return Pointer{}, false
			}
			p.Size = n
		}
	}
	return p, p.OID != ""
}

// lfsFile is a file of a tree whose content is in Git LFS.
type lfsFile struct {
	Pointer
	name       string
	executable bool
}

// fetchLFS writes the content of files into a tree.
func (g *Git) fetchLFS(ctx context.Context, repository string, files []lfsFile, out *archive.Tree) error {
	if len(files) == 0 {
		return nil
	}
	u, err := parseGitURL(repository)
	if err != nil {
		return err
	}
	switch {
	case u.Scheme == "ssh":
		return lfsFault(fault.Invalid, files, "is kept in Git LFS, which Terrier fetches over https only: set spec.url to the https address of the repository, or leave the file out with spec.ignore")
	case len(files) > maxLFSObjects:
		return lfsFault(fault.Invalid, files, "and %d more are kept in Git LFS, more than the %d that are fetched: leave files out with spec.ignore", len(files)-1, maxLFSObjects)
	}
	client, err := g.client(u)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for batch := range slices.Chunk(files, maxLFSBatch) {
		actions, err := lfsBatch(ctx, client, u, batch)
		if err != nil {
			return lfsFault(fault.Of(err), batch, "is kept in Git LFS, and its content cannot be found: %w", err)
		}
		for _, f := range batch {
			if err := lfsDownload(ctx, client, u, f, actions[f.OID], out); err != nil {
				return lfsFault(fault.Of(err), []lfsFile{f}, "is kept in Git LFS, and its content cannot be fetched: %w", err)
			}
		}
	}
	return nil
}

// lfsFault is about the first of files.
func lfsFault(kind fault.Kind, files []lfsFile, format string, args ...any) error {
	return fault.New(kind, ReasonGit, fmt.Errorf("the file %q "+format, append([]any{files[0].name}, args...)...))
}

// lfsAction is where a server has an object.
type lfsAction struct {
	Href   string            `json:"href"`
	Header map[string]string `json:"header"`
}

// lfsEndpoint is where the server of a repository answers to batches.
func lfsEndpoint(u *url.URL) string {
	path := strings.TrimSuffix(u.Path, "/")
	if !strings.HasSuffix(path, ".git") {
		path += ".git"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path + "/info/lfs/objects/batch"}).String()
}

// lfsBatch asks where objects are.
func lfsBatch(ctx context.Context, client *http.Client, u *url.URL, files []lfsFile) (map[string]lfsAction, error) {
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	ask := struct {
		Operation string   `json:"operation"`
		Transfers []string `json:"transfers"`
		HashAlgo  string   `json:"hash_algo"`
		Objects   []object `json:"objects"`
	}{Operation: "download", Transfers: []string{"basic"}, HashAlgo: "sha256"}
	for _, f := range files {
		ask.Objects = append(ask.Objects, object(f.Pointer))
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, lfsEndpoint(u), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", lfsMedia)
	req.Header.Set("Content-Type", lfsMedia)
	var answer struct {
		Objects []struct {
			OID     string               `json:"oid"`
			Actions map[string]lfsAction `json:"actions"`
			Error   *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		} `json:"objects"`
	}
	err = lfsAnswer(client, req, func(r io.Reader) error {
		return json.NewDecoder(io.LimitReader(r, maxLFSAnswer)).Decode(&answer)
	})
	if err != nil {
		return nil, fmt.Errorf("asking for it: %w", err)
	}
	found := map[string]lfsAction{}
	for _, o := range answer.Objects {
		if o.Error != nil {
			return nil, fault.New(fault.Missing, ReasonGit, fmt.Errorf("the server says of the object %.64s: %.200q (%d)", o.OID, o.Error.Message, o.Error.Code))
		}
		found[o.OID] = o.Actions["download"]
	}
	return found, nil
}

// lfsDownload writes the content of one file of the repository at u.
func lfsDownload(ctx context.Context, client *http.Client, u *url.URL, f lfsFile, at lfsAction, out *archive.Tree) error {
	if at.Href == "" {
		return missing(ReasonGit, "the server does not say where it is")
	}
	if len(at.Header) > maxLFSHeaders {
		return invalid(ReasonGit, "the server asks for more than %d headers", maxLFSHeaders)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Href, nil)
	if err != nil {
		return invalid(ReasonURL, "the server gives an address that cannot be read")
	}
	if u.Scheme == "https" && req.URL.Scheme == "http" {
		return fault.New(fault.Denied, outbound.ReasonInsecure, fmt.Errorf("the source is read over https, and the server gives an unencrypted address at %q", req.URL.Host))
	}
	for name, value := range at.Header {
		req.Header.Set(name, value)
	}
	return lfsAnswer(client, req, func(r io.Reader) error {
		h := sha256.New()
		if err := out.Write(f.name, f.executable, f.Size, io.TeeReader(r, h)); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != f.OID {
			return fmt.Errorf("the content has the digest %s, and the pointer names %s", got, f.OID)
		}
		return nil
	})
}

// lfsAnswer sends a request and reads the answer.
func lfsAnswer(client *http.Client, req *http.Request, read func(io.Reader) error) error {
	resp, err := client.Do(req)
	// An http.Client puts the whole address into its errors, and the query of an
	// address may be the permission to read it.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("%s: %w", req.URL.Host, u.Err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return read(resp.Body)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Denied, ReasonAuth, fmt.Errorf("%s answers %s", req.URL.Host, resp.Status))
	case http.StatusNotFound:
		return missing(ReasonGit, "%s answers %s", req.URL.Host, resp.Status)
	default:
		return fmt.Errorf("%s answers %s", req.URL.Host, resp.Status)
	}
}

// LFSFetched is in the metadata of artifacts of git whose pointers of Git LFS were
// replaced by what they point to. Earlier releases made artifacts without it.
const LFSFetched = "terrier.dev/lfs-fetched"

// FindPointer returns the first file below one of the root modules of an artifact that
// is a pointer of Git LFS; empty if there is none. It unpacks the artifact in a
// directory below scratchDir. A root module that is not there has none.
func (s *Store) FindPointer(a Stored, roots []string, scratchDir string, limits archive.Limits) (name string, err error) {
	f, err := s.Open(a.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	err = scratch(scratchDir, func(dir string) error {
		if err := archive.Extract(f, dir, limits); err != nil {
			return err
		}
		for _, root := range roots {
			found, err := FindPointer(os.DirFS(dir), root, func(string) bool { return false })
			if err == nil && found != "" {
				name = found
			}
		}
		return nil
	})
	return name, err
}

// FindPointer returns the first file below a directory of a tree that is a pointer
// of Git LFS; empty if there is none.
func FindPointer(tree fs.FS, below string, skip func(name string) bool) (string, error) {
	var found string
	err := fs.WalkDir(tree, below, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || skip(name) {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() > maxPointer || info.Size() < int64(len(lfsVersion)) {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if _, ok := ParsePointer(content); ok {
			found = name
			return fs.SkipAll
		}
		return nil
	})
	return found, err
}

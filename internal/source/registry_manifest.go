package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func manifestUnknown() error {
	return refusal{http.StatusNotFound, "MANIFEST_UNKNOWN", "the repository has no such manifest"}
}

func (g *Registry) manifest(w http.ResponseWriter, r *http.Request, to route) error {
	tagged := !strings.Contains(to.rest, ":")
	if tagged && !tagGrammar.MatchString(to.rest) {
		return refusal{http.StatusBadRequest, "TAG_INVALID", "the tag is not valid"}
	}
	if !tagged {
		if _, err := hexOf(to.rest); err != nil {
			return err
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return g.getManifest(w, r, to)
	case http.MethodPut:
		return g.putManifest(w, r, to, tagged)
	case http.MethodDelete:
		return g.deleteManifest(w, to, tagged)
	}
	return notAllowed(w, "GET, HEAD, PUT, DELETE")
}

// resolve returns the hexadecimal digest of a tag or of a digest.
func (g *Registry) resolve(to route) (string, error) {
	if strings.Contains(to.rest, ":") {
		return hexOf(to.rest)
	}
	digest, err := os.ReadFile(g.at(to.repo, "_tags", to.rest))
	if errors.Is(err, fs.ErrNotExist) {
		return "", manifestUnknown()
	}
	if err != nil {
		return "", err
	}
	return hexOf(string(digest))
}

func (g *Registry) getManifest(w http.ResponseWriter, r *http.Request, to route) error {
	sum, err := g.resolve(to)
	if err != nil {
		return err
	}
	mediaType, err := os.ReadFile(g.at(to.repo, "_types", sum))
	if errors.Is(err, fs.ErrNotExist) {
		return manifestUnknown()
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", string(mediaType))
	return serveFile(w, r, g.at(to.repo, "_manifests", sum), "sha256:"+sum, manifestUnknown())
}

func (g *Registry) putManifest(w http.ResponseWriter, r *http.Request, to route, tagged bool) error {
	content, err := io.ReadAll(io.LimitReader(r.Body, g.ManifestBytes+1))
	if err != nil {
		return err
	}
	if int64(len(content)) > g.ManifestBytes {
		return refusal{http.StatusRequestEntityTooLarge, "MANIFEST_INVALID", "the manifest is too large"}
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return refusal{http.StatusBadRequest, "MANIFEST_INVALID", "the manifest has no media type"}
	}
	if err := g.complete(to.repo, content); err != nil {
		return err
	}
	hash := sha256.Sum256(content)
	sum := hex.EncodeToString(hash[:])
	if !tagged && to.rest != "sha256:"+sum {
		return digestInvalid()
	}
	// A manifest is known once its type and content are there, in this order;
	// the tag moves last.
	if err := g.put(r.Context(), to.repo, []byte(mediaType), "_types", sum); err != nil {
		return err
	}
	if err := g.put(r.Context(), to.repo, content, "_manifests", sum); err != nil {
		return err
	}
	if tagged {
		if err := g.put(r.Context(), to.repo, []byte("sha256:"+sum), "_tags", to.rest); err != nil {
			return err
		}
	}
	return created(w, to.repo, "manifests", "sha256:"+sum)
}

// put writes a small file of a repository whole and durably.
func (g *Registry) put(ctx context.Context, repo string, content []byte, at ...string) (err error) {
	target, dir := g.at(repo, at...), filepath.Join(g.dir, "uploads", ownerOf(repo))
	a, err := g.ledger.open(ctx, repo)
	if err != nil {
		return err
	}
	defer a.close()
	defer func() {
		if err != nil {
			a.undo()
		}
	}()
	more, err := directories(target)
	if err != nil {
		return err
	}
	before, there, err := sizeAt(target)
	if err != nil {
		return err
	}
	if err := errors.Join(a.take(more+leastCost), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	// The name is not one of an upload, so that no request can reach it.
	f, err := os.CreateTemp(dir, "put-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := a.writer(f, 0).Write(content); err != nil {
		return err
	}
	if err := publish(f, target); err != nil {
		return err
	}
	if there {
		g.ledger.give(a.owner, cost(before))
	}
	return nil
}

// complete checks that everything a manifest names is in the repository.
func (g *Registry) complete(repo string, content []byte) error {
	type descriptor struct {
		Digest string   `json:"digest"`
		URLs   []string `json:"urls"`
	}
	var m struct {
		Config    *descriptor  `json:"config"`
		Layers    []descriptor `json:"layers"`
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return refusal{http.StatusBadRequest, "MANIFEST_INVALID", "the manifest is not JSON"}
	}
	if m.Config != nil {
		m.Layers = append(m.Layers, *m.Config)
	}
	check := func(in string, d descriptor) error {
		if len(d.URLs) > 0 {
			return nil // its content is elsewhere
		}
		sum, err := hexOf(d.Digest)
		if err == nil {
			_, err = os.Stat(g.at(repo, in, sum))
		}
		if err != nil {
			return refusal{http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN", "the manifest names content that the repository does not have"}
		}
		return nil
	}
	for _, d := range m.Layers {
		if err := check("_blobs", d); err != nil {
			return err
		}
	}
	for _, d := range m.Manifests {
		if err := check("_manifests", d); err != nil {
			return err
		}
	}
	return nil
}

// deleteManifest removes a tag, or a manifest with the tags that point to it.
func (g *Registry) deleteManifest(w http.ResponseWriter, to route, tagged bool) error {
	sum, err := g.resolve(to)
	if err != nil {
		return err
	}
	if tagged {
		if err := g.ledger.remove(ownerOf(to.repo), g.at(to.repo, "_tags", to.rest)); err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	tags, err := g.list(to.repo)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if at, err := g.resolve(route{to.repo, tag}); err == nil && at == sum {
			if err := g.ledger.remove(ownerOf(to.repo), g.at(to.repo, "_tags", tag)); err != nil {
				return err
			}
		}
	}
	if err := g.ledger.remove(ownerOf(to.repo), g.at(to.repo, "_manifests", sum)); errors.Is(err, fs.ErrNotExist) {
		return manifestUnknown()
	} else if err != nil {
		return err
	}
	if err := g.ledger.remove(ownerOf(to.repo), g.at(to.repo, "_types", sum)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// list returns the tags of a repository, sorted.
func (g *Registry) list(repo string) ([]string, error) {
	if _, err := os.Stat(g.at(repo)); err != nil {
		return nil, refusal{http.StatusNotFound, "NAME_UNKNOWN", "there is no such repository"}
	}
	entries, err := os.ReadDir(g.at(repo, "_tags"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	tags := []string{}
	for _, e := range entries {
		tags = append(tags, e.Name())
	}
	return tags, nil
}

// tags serves /v2/<name>/tags/list[?n=<count>&last=<tag>].
func (g *Registry) tags(w http.ResponseWriter, r *http.Request, to route) error {
	if to.rest != "list" {
		return refusal{http.StatusNotFound, "UNSUPPORTED", "the path is not one of a registry"}
	}
	if r.Method != http.MethodGet {
		return notAllowed(w, "GET")
	}
	tags, err := g.list(to.repo)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	if last := query.Get("last"); last != "" {
		at, found := slices.BinarySearch(tags, last)
		if found {
			at++
		}
		tags = tags[at:]
	}
	if text := query.Get("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return refusal{http.StatusBadRequest, "PAGINATION_NUMBER_INVALID", "n is not a number of tags"}
		}
		if n < len(tags) {
			tags = tags[:n]
			if n > 0 {
				next := url.URL{Path: r.URL.Path, RawQuery: url.Values{"n": {text}, "last": {tags[n-1]}}.Encode()}
				w.Header().Set("Link", "<"+next.String()+`>; rel="next"`)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"name": to.repo, "tags": tags})
}

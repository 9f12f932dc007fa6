package forge

import (
	"bytes"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
)

// handler serves images below /v2/, and repositories below all other paths.
func (f *Forge) handler(images http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/") {
			f.serveImages(w, r, images)
			return
		}
		f.serveGit(w, r)
	})
}

func (f *Forge) serveImages(w http.ResponseWriter, r *http.Request, images http.Handler) {
	user, password, _ := r.BasicAuth()
	if user != registryUser || subtle.ConstantTimeCompare([]byte(password), []byte(f.keys.password)) != 1 {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, "the user or the password is wrong", http.StatusUnauthorized)
		return
	}
	images.ServeHTTP(w, r)
}

// The two requests of a fetch over HTTP, by the end of their paths, and the largest body.
const (
	listRefs     = "/info/refs"
	fetch        = "/git-upload-pack"
	uploadPack   = "git-upload-pack"
	mostHTTPBody = 1 << 20
)

// serveGit serves reading over HTTP.
func (f *Forge) serveGit(w http.ResponseWriter, r *http.Request) {
	path, lists := strings.CutSuffix(r.URL.Path, listRefs)
	path, fetches := strings.CutSuffix(path, fetch)
	switch {
	case lists && r.Method == http.MethodGet && r.URL.Query().Get("service") == uploadPack:
	case !lists && fetches && r.Method == http.MethodPost && r.Header.Get("Content-Encoding") == "":
	default:
		http.Error(w, "only git fetch is served here; push over ssh", http.StatusForbidden)
		return
	}
	session, err := server.NewServer(f).NewUploadPackSession(&transport.Endpoint{Path: path}, nil)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer session.Close()
	w.Header().Set("Cache-Control", "no-cache")
	if fetches {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		if err := f.sendPack(r.Context(), session, path, http.MaxBytesReader(w, r.Body, mostHTTPBody), w); err != nil {
			f.log.Debug("git fetch failed", "err", err)
		}
		return
	}
	refs, err := session.AdvertisedReferencesContext(r.Context())
	if err != nil {
		http.Error(w, "the references cannot be read", http.StatusInternalServerError)
		return
	}
	refs.Prefix = [][]byte{[]byte("# service=" + uploadPack), pktline.Flush}
	var b bytes.Buffer
	if err := refs.Encode(&b); err != nil {
		http.Error(w, "the references cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

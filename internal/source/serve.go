package source

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// ArtifactPath returns the path at which a handler with the same key serves
// the artifact: its own path after a part that cannot be guessed from it.
// A user who may read a source object learns the URL of its artifact, and nothing
// about others.
func ArtifactPath(key secret.Text, artifact string) string {
	return "/" + ticket(key, artifact) + "/" + artifact
}

func ticket(key secret.Text, artifact string) string {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte("artifact\x00" + artifact)) // the key serves other purposes too
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// NewArtifactHandler serves the artifacts of s, read-only, at the paths that
// ArtifactPath returns. To everything else it answers that there is nothing.
func NewArtifactHandler(s *Store, key secret.Text) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		given, artifact, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !hmac.Equal([]byte(given), []byte(ticket(key, artifact))) {
			http.NotFound(w, r)
			return
		}
		f, err := s.Open(artifact)
		if err != nil {
			http.Error(w, http.StatusText(fault.Of(err).Meaning().HTTP), fault.Of(err).Meaning().HTTP)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			http.Error(w, "internal server error", http.StatusInternalServerError)
			return
		}
		digest := pathForm.FindStringSubmatch(artifact)[1]
		w.Header().Set("Content-Type", "application/gzip")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		w.Header().Set("ETag", `"`+digest+`"`)
		http.ServeContent(w, r, "", info.ModTime(), f)
	})
}

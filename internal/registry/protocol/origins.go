package protocol

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/secret"
)

// origins serve the repositories whose tags become versions: what is known of them, and
// their webhooks.
type origins struct {
	*Server
	from *origin.Poller
}

// ServeOrigins adds the repositories of a poller.
func (s *Server) ServeOrigins(p *origin.Poller) {
	routes := origins{s, p}
	for pattern, do := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + prefix + "repositories":                       routes.list,
		"POST " + prefix + "webhooks/{namespace}/{repository}": routes.webhook,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := do(w, r); err != nil {
				s.answer(w, r, err)
			}
		})
	}
}

// list answers with the repositories of all namespaces in which the caller may read.
func (s origins) list(w http.ResponseWriter, r *http.Request) error {
	c, err := s.Rights.Caller(r)
	if err != nil {
		return err
	}
	all, err := s.from.States(r.Context())
	if err != nil {
		return err
	}
	may := map[string]bool{}
	items := []origin.State{}
	for _, one := range all {
		allowed, asked := may[one.Namespace]
		if !asked {
			err := s.Rights.May(r.Context(), c, Read, one.Namespace)
			if err != nil && fault.Of(err) != fault.Denied {
				return err
			}
			allowed = err == nil
			may[one.Namespace] = allowed
		}
		if allowed {
			items = append(items, one)
		}
	}
	s.JSON(w, r, map[string]any{"items": items})
	return nil
}

// mostWebhook bounds the body of a webhook. GitHub sends 25 MB at most.
const mostWebhook = 25 << 20

// errWebhook is the answer to a webhook that is refused. It says nothing about which
// repositories there are.
var errWebhook = Unauthenticated(errors.New("no repository of this name takes webhooks with this signature: compare the secret of the webhook with the one that is registered for the repository"))

// webhook takes a hint that a repository has changed. The signature is all that counts: of
// the body nothing is read, so that a webhook that is sent again has the repository checked
// once more, and changes nothing.
func (s origins) webhook(w http.ResponseWriter, r *http.Request) error {
	k := origin.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("repository")}
	key, failed := s.from.Secret(r.Context(), k)
	switch {
	case fault.Of(failed) == fault.Later:
		return failed
	case failed != nil:
		key = secret.New(rand.Text()) // an unknown repository takes as long as a known one
	}
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	if _, err := io.Copy(mac, http.MaxBytesReader(w, r.Body, mostWebhook)); err != nil {
		return fault.New(fault.Invalid, "BodyInvalid", err)
	}
	if !signed(r.Header, mac.Sum(nil), key) || failed != nil {
		if kind := fault.Of(failed); failed != nil && kind != fault.Missing {
			s.Log.Warn("webhook refused", "repository", k.String(), "err", failed)
		}
		return errWebhook
	}
	// The sender may close the connection once it has sent everything.
	if err := s.from.Ask(context.WithoutCancel(r.Context()), k); err != nil {
		return err
	}
	s.Log.Debug("webhook taken", "repository", k.String())
	s.json(w, r, http.StatusAccepted, map[string]string{"message": "the repository is checked soon"})
	return nil
}

// signed reports whether one of the headers of git servers has the signature of a body, or
// the secret itself, which GitLab sends.
func signed(h http.Header, sum []byte, key secret.Text) bool {
	for _, name := range []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Forgejo-Signature", "X-Signature"} {
		text, given := strings.CutPrefix(h.Get(name), "sha256=")
		if !given && text == "" {
			continue
		}
		if got, err := hex.DecodeString(text); err == nil && hmac.Equal(got, sum) {
			return true
		}
	}
	given := h.Get("X-Gitlab-Token")
	return given != "" && subtle.ConstantTimeCompare([]byte(given), []byte(key.Reveal())) == 1
}

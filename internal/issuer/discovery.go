package issuer

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/go-jose/go-jose/v4"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
)

// hash is that of the names of keys.
const hash = crypto.SHA256

var errNoDocument = errors.New("there is no such document")

// discovery is as much of the metadata of OpenID Connect as an issuer has at which no user signs in.
type discovery struct {
	Issuer     string   `json:"issuer"`
	Keys       string   `json:"jwks_uri"`
	Types      []string `json:"response_types_supported"`
	Subjects   []string `json:"subject_types_supported"`
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
	Claims     []string `json:"claims_supported"`
	Scopes     []string `json:"scopes_supported"`
}

// Document is the document at one of the paths.
func (i *Issuer) Document(ctx context.Context, path string) ([]byte, error) {
	switch path {
	case identity.PathDiscovery:
		return json.MarshalIndent(discovery{
			Issuer: i.o.URL, Keys: i.o.URL + identity.PathKeys, Types: []string{"id_token"}, Subjects: []string{"public"}, Algorithms: []string{string(algorithm)}, Scopes: []string{"openid"},
			Claims: []string{"iss", "sub", "aud", "iat", "nbf", "exp", "jti", "run_id", "run_kind", "phase", "stack", "stack_kind", "stack_uid", "namespace", "namespace_uid", "tenant", "cluster", "source_url", "source_revision"},
		}, "", "  ")
	case identity.PathKeys:
		keys, err := i.known(ctx)
		if err != nil {
			return nil, err
		}
		if len(keys) == 0 { // an empty list would be kept, and the first key be unknown for an hour
			return nil, fault.New(fault.Later, "NoKeyYet", errors.New("there is no key yet: the leader makes one"))
		}
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
		for _, k := range keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.ID, Algorithm: string(algorithm), Use: "sig"})
		}
		return json.MarshalIndent(set, "", "  ")
	default:
		return nil, fault.New(fault.Missing, "NoDocument", errNoDocument)
	}
}

// cached is how long others may keep the documents. A key is published for much longer before
// a token is signed with it.
const cached = "public, max-age=3600"

// ServeHTTP serves the documents to all clients: they hold nothing but public keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	data, err := i.Document(req.Context(), req.URL.Path)
	switch {
	case fault.Of(err) == fault.Missing:
		http.NotFound(w, req)
		return
	case err != nil:
		i.o.Log.Warn("keys of identities not served", "err", err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "the keys cannot be read now", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", cached)
	h.Del("Pragma")
	h.Del("Expires")
	h.Set("Content-Type", "application/json")
	h.Set("Access-Control-Allow-Origin", "*")
	_, _ = w.Write(append(data, '\n'))
}

package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web"
)

// pulls lets sources pull from the built-in registry without a Secret, each
// namespace only its own repositories: the first part of a repository's name
// is its namespace.
type pulls struct {
	web.Auth
	key  secret.Text
	host string // of the registry, host:port
}

const (
	pullToken = "terrier-pull."
	pullUser  = "system:terrier:pull:"
)

// token is the token of the sources of a namespace. It is derived, so it
// need not be stored, and it is valid for one namespace.
func (p pulls) token(namespace string) string {
	mac := hmac.New(sha256.New, []byte(p.key.Reveal()))
	mac.Write([]byte("pull\x00" + namespace))
	return pullToken + namespace + "." + hex.EncodeToString(mac.Sum(nil))
}

// config is a Docker configuration with the token of a namespace.
func (p pulls) config(namespace string) []byte {
	auth := base64.StdEncoding.EncodeToString([]byte("terrier:" + p.token(namespace)))
	b, err := json.Marshal(map[string]any{"auths": map[string]any{p.host: map[string]string{"auth": auth}}})
	if err != nil {
		panic("app: encoding strings: " + err.Error())
	}
	return b
}

func (p pulls) Authenticate(ctx context.Context, token secret.Text) (access.User, error) {
	rest, ok := strings.CutPrefix(token.Reveal(), pullToken)
	if !ok {
		return p.Auth.Authenticate(ctx, token)
	}
	namespace, _, _ := strings.Cut(rest, ".")
	if !hmac.Equal([]byte(token.Reveal()), []byte(p.token(namespace))) {
		return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, errPull)
	}
	return access.User{Name: pullUser + namespace}, nil
}

func (p pulls) Authorize(ctx context.Context, u access.User, a access.Request) error {
	namespace, ok := strings.CutPrefix(u.Name, pullUser)
	if !ok {
		return p.Auth.Authorize(ctx, u, a)
	}
	if a.Verb == "get" && a.Resource == access.ResourceRegistry && a.Namespace == namespace {
		return nil
	}
	return fault.New(fault.Denied, "Forbidden", errPullElsewhere)
}

type pullError string

func (e pullError) Error() string { return string(e) }

const (
	errPull          pullError = "the token does not belong to this registry"
	errPullElsewhere pullError = "the sources of a namespace may pull only its own repositories: oci://REGISTRY/NAMESPACE/…"
)

package kms

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
	"github.com/terrier-iac/terrier/internal/secret"
)

// vault is the transit engine of OpenBao or Vault. It needs two requests of it and one to
// sign in, so it takes no library.
type vault struct {
	place Place
	http  *http.Client
	fixed secret.Text // from the environment
	now   func() time.Time

	mu      sync.Mutex
	token   secret.Text // of the role
	expires time.Time
}

// accountToken is where a pod finds the token of its ServiceAccount.
const accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

func openVault(p Place, c cloud.Clients, o cloud.Options) (service, error) {
	v := &vault{place: p, http: c.Data, fixed: secret.New(o.Environ(p.TokenIn)), now: o.Now}
	if p.Role == "" && p.TokenFile == "" && v.fixed.Empty() {
		return nil, fmt.Errorf("%w: there are none: %s", cloud.ErrIdentity, identities[Vault])
	}
	return v, nil
}

func (v *vault) url(path ...string) string {
	return v.place.Endpoint.JoinPath(append([]string{"v1"}, path...)...).String()
}

func (v *vault) headers(r *http.Request, token secret.Text) {
	if !token.Empty() {
		r.Header.Set("X-Vault-Token", token.Reveal())
	}
	if v.place.Namespace != "" {
		r.Header.Set("X-Vault-Namespace", v.place.Namespace)
	}
	r.Header.Set("X-Vault-Request", "true")
}

// identity returns a token: that of a file, which an agent may renew, or of a sign-in with
// a role, or of the environment.
func (v *vault) identity(ctx context.Context) (secret.Text, error) {
	if v.place.TokenFile != "" {
		b, err := os.ReadFile(v.place.TokenFile)
		if err != nil {
			return secret.Text{}, fmt.Errorf("%w: %w", cloud.ErrIdentity, err)
		}
		return secret.New(strings.TrimSpace(string(b))), nil
	}
	if v.place.Role == "" {
		return v.fixed, nil
	}
	v.mu.Lock()
	token, good := v.token, v.now().Before(v.expires)
	v.mu.Unlock()
	if good {
		return token, nil
	}
	jwt, err := os.ReadFile(v.place.JWTFile)
	if err != nil {
		return secret.Text{}, fmt.Errorf("%w: %w", cloud.ErrIdentity, err)
	}
	return v.signIn(ctx, strings.TrimSpace(string(jwt)))
}

// signIn exchanges the token of a ServiceAccount for one of Vault.
func (v *vault) signIn(ctx context.Context, jwt string) (secret.Text, error) {
	var out struct {
		Auth struct {
			Token   string `json:"client_token"`
			Seconds int    `json:"lease_duration"`
		}
	}
	err := post(ctx, v.http, v.url("auth", v.place.Auth, "login"), map[string]string{"role": v.place.Role, "jwt": jwt}, &out, func(r *http.Request, _ []byte) error {
		v.headers(r, secret.Text{})
		return nil
	})
	if a, ok := errors.AsType[answer](err); ok && a.code/100 == 4 {
		err = fmt.Errorf("%w: signing in with the role %s: %s", cloud.ErrIdentity, v.place.Role, a.text)
	}
	if err == nil && out.Auth.Token == "" {
		err = fmt.Errorf("%w: signing in with the role %s gave no token", cloud.ErrIdentity, v.place.Role)
	}
	if err != nil {
		return secret.Text{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.token = secret.New(out.Auth.Token)
	v.expires = v.now().Add(time.Duration(out.Auth.Seconds) * time.Second / 2)
	return v.token, nil
}

// do makes a request of the transit engine. A token that was revoked is replaced once.
func (v *vault) do(ctx context.Context, operation string, in, out any) error {
	for again := v.place.Role != ""; ; again = false {
		token, err := v.identity(ctx)
		if err != nil {
			return err
		}
		err = post(ctx, v.http, v.url(v.place.Mount, operation, v.place.Key), in, out, func(r *http.Request, _ []byte) error {
			v.headers(r, token)
			return nil
		})
		if a, ok := errors.AsType[answer](err); !ok || a.code != http.StatusForbidden || !again {
			return err
		}
		v.mu.Lock()
		v.expires = time.Time{}
		v.mu.Unlock()
	}
}

func (v *vault) wrap(ctx context.Context, key []byte) ([]byte, string, error) {
	var out struct {
		Data struct {
			Ciphertext string
			Version    int `json:"key_version"`
		}
	}
	err := v.do(ctx, "encrypt", map[string][]byte{"plaintext": key}, &out)
	return []byte(out.Data.Ciphertext), strconv.Itoa(out.Data.Version), err
}

func (v *vault) unwrap(ctx context.Context, wrapped []byte, _ string) ([]byte, error) {
	var out struct{ Data struct{ Plaintext []byte } }
	err := v.do(ctx, "decrypt", map[string]string{"ciphertext": string(wrapped)}, &out)
	return out.Data.Plaintext, err
}

func (v *vault) diagnose(a answer) cloud.Trouble {
	switch {
	case a.says("encryption key not found", "no handler for route", "too old", "disallowed by policy"):
		return cloud.NotThere
	case a.code == http.StatusBadRequest:
		return troubleForeign
	}
	return cloud.Unknown
}

package source

import (
	"encoding/json"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/terrier-iac/terrier/internal/plan"
)

// Keyring holds credentials for registries. A nil Keyring holds none. It
// satisfies authn.Keychain.
type Keyring struct {
	entries map[string]authn.AuthConfig // by registry[/path]
}

// ParseKeyring reads the contents of .dockerconfigjson Secrets or of
// ~/.docker/config.json. Of two entries for one place the first one counts.
// Credential helpers are programs, and are not run.
func ParseKeyring(configs ...[]byte) (*Keyring, error) {
	k := &Keyring{entries: map[string]authn.AuthConfig{}}
	for _, config := range configs {
		var file struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if err := json.Unmarshal(config, &file); err != nil {
			// The error may quote what it read.
			return nil, invalid(ReasonAuth, "the registry credentials are not in the form of a Docker configuration")
		}
		for place, auth := range file.Auths {
			place = registryPlace(place)
			if _, has := k.entries[place]; !has {
				k.entries[place] = auth
			}
		}
	}
	return k, nil
}

// Hide takes the passwords out of a text.
func (k *Keyring) Hide(text string) string {
	if k == nil {
		return text
	}
	var all []string
	for _, a := range k.entries {
		all = append(all, a.Password, a.Auth, a.IdentityToken, a.RegistryToken)
	}
	return plan.NewRedactor(all).String(text)
}

// registryPlace spells a key of a Docker configuration like the names that are
// looked up: without scheme, API version and trailing slash.
func registryPlace(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key = strings.TrimSuffix(key, "/")
	key = strings.TrimSuffix(strings.TrimSuffix(key, "/v1"), "/v2")
	host, path, found := strings.Cut(key, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	if found {
		return host + "/" + path
	}
	return host
}

// Resolve returns the credentials of the entry that fits target best.
func (k *Keyring) Resolve(target authn.Resource) (authn.Authenticator, error) {
	if k == nil {
		return authn.Anonymous, nil
	}
	place := target.String()
	for {
		if auth, ok := k.entries[place]; ok {
			return authn.FromConfig(auth), nil
		}
		cut := strings.LastIndex(place, "/")
		if cut < 0 {
			return authn.Anonymous, nil
		}
		place = place[:cut]
	}
}

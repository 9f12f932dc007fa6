package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/source"
)

// PushOptions say what to write on an artifact and how to reach its registry.
type PushOptions struct {
	Source       string // where the tree comes from, for people
	Revision     string // which state of it, for people
	Insecure     bool   // over http
	DockerConfig string // a directory with credentials of registries; empty uses that at home
}

// findTime bounds the question whether a registry is that of the cluster's server:
// most registries are not, and there may be no cluster.
const findTime = 5 * time.Second

// Push packs the tree below dir and pushes it to url as an artifact that an
// OCIRepository can name. To the registry of the cluster's own server it
// presents the caller's token, to others what the Docker configuration holds
// for them. It returns the digest of the artifact.
func Push(ctx context.Context, c Connection, dir, url string, o PushOptions) (string, error) {
	registry, _, _ := strings.Cut(strings.TrimPrefix(url, source.OCIScheme), "/")
	keys, err := o.dockerConfig(c.Home)
	if err != nil {
		return "", err
	}
	options := source.PushOptions{Source: o.Source, Revision: o.Revision, Insecure: o.Insecure}
	var own, ca []byte
	if !o.Insecure { // the server is reached over https only
		own, ca = c.ownRegistry(ctx, registry)
	}
	if own != nil {
		keys, options.CA = append([][]byte{own}, keys...), ca
	}
	if options.Keys, err = source.ParseKeyring(keys...); err != nil {
		return "", err
	}
	// The user typed the address, so that any host is allowed.
	host, port, err := net.SplitHostPort(registry)
	if err != nil {
		host, port = registry, ""
	}
	allow, err := outbound.ParseAllow(net.JoinHostPort(host, cmp.Or(port, "443")), net.JoinHostPort(host, cmp.Or(port, "80")))
	if err != nil {
		return "", fault.New(fault.Invalid, source.ReasonURL, err)
	}
	options.Out = outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true, Proxy: true})
	defer options.Out.Close()
	return source.Push(ctx, dir, url, options)
}

// dockerConfig reads the credentials that other tools keep, if there are any.
func (o PushOptions) dockerConfig(home string) ([][]byte, error) {
	dir := o.DockerConfig
	if dir == "" && home == "" {
		return nil, nil
	}
	content, err := os.ReadFile(filepath.Join(cmp.Or(dir, filepath.Join(home, ".docker")), "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of registries: %w", err)
	}
	return [][]byte{content}, nil
}

// ownRegistry returns the credentials and the certificate authority for registry if
// it is that of the server. Otherwise, or if no cluster can say so, it returns
// nothing, and the registry itself says what is missing.
func (c Connection) ownRegistry(ctx context.Context, registry string) (keys, ca []byte) {
	if c.Direct() {
		base, err := parseServer(c.Server)
		if err != nil || base.Host != registry {
			return nil, nil
		}
		if c.CA != "" {
			ca, err = os.ReadFile(c.CA)
		}
		if err != nil {
			return nil, nil
		}
		return registryKeys(registry, c.Token.Reveal()), ca
	}
	config, _, err := c.config()
	if err != nil {
		return nil, nil
	}
	kube, err := access.NewClient(config, c.StackKinds())
	if err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	s, err := findServer(ctx, kube, c.Server)
	if err != nil || s.base.Host != registry || !s.proven(ctx, config) {
		return nil, nil
	}
	token, err := bearer(config)
	if err != nil || token == "" {
		return nil, s.ca
	}
	return registryKeys(registry, token), s.ca
}

// registryKeys are credentials of the registry of a server, as a Docker
// configuration holds them.
func registryKeys(registry, token string) []byte {
	keys, err := json.Marshal(map[string]any{"auths": map[string]any{registry: map[string]string{"username": "terrier", "password": token}}})
	if err != nil {
		panic("client: encoding strings: " + err.Error())
	}
	return keys
}

func bearer(config *rest.Config) (string, error) {
	if config.BearerTokenFile == "" {
		return config.BearerToken, nil
	}
	content, err := os.ReadFile(config.BearerTokenFile)
	return strings.TrimSpace(string(content)), err
}

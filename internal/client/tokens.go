package client

import (
	"context"
	"net/url"

	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/command"
)

// RegistryTokens are the tokens for the registry of a server.
type RegistryTokens struct{ *conn }

// RegistryTokens returns the tokens for the registry of the server, and the namespace of a
// command that names none.
func (c Connection) RegistryTokens(ctx context.Context) (*RegistryTokens, string, error) {
	s, namespace, err := c.server(ctx)
	return &RegistryTokens{s}, namespace, err
}

// Host is the host of the server, with its port.
func (r *RegistryTokens) Host() string { return r.host() }

// List returns the tokens that the user may see.
func (r *RegistryTokens) List(ctx context.Context) ([]regtoken.Token, error) {
	return listed[regtoken.Token](ctx, r.conn, r.at(url.Values{}, "registry", "tokens"))
}

// Create creates a token of a namespace.
func (r *RegistryTokens) Create(ctx context.Context, namespace string, wanted command.NewRegistryToken) (command.MadeRegistryToken, error) {
	var made command.MadeRegistryToken
	err := r.post(ctx, requestTime, wanted, &made, "namespaces", namespace, "registry", "tokens")
	return made, err
}

// Revoke revokes a token. One that has ended stays as it is.
func (r *RegistryTokens) Revoke(ctx context.Context, id string) (regtoken.Token, error) {
	var t regtoken.Token
	err := r.post(ctx, requestTime, struct{}{}, &t, "registry", "tokens", id, "revoke")
	return t, err
}

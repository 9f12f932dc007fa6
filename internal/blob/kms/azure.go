package kms

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// azureKeys is an RSA key of Azure Key Vault or of a managed HSM, by two requests of its
// REST API.
type azureKeys struct {
	place    Place
	http     *http.Client
	identity azcore.TokenCredential
}

const (
	azureVersion   = "7.4" // of the API
	azureAlgorithm = "RSA-OAEP-256"
	azureDomain    = "vault.azure.net" // of the vaults of the public cloud
)

func openAzure(p Place, c cloud.Clients, o cloud.Options) (service, error) {
	identity, err := cloud.Azure(c, o)
	if err != nil {
		return nil, err
	}
	return &azureKeys{p, c.Data, identity}, nil
}

// scope is for what a token is: the domain of the vaults of a cloud.
func (k *azureKeys) scope() string {
	vault, _, _ := strings.Cut(k.place.Key, "/")
	_, domain, named := strings.Cut(vault, ".")
	if !named {
		domain = azureDomain
	}
	return "https://" + domain + "/.default"
}

func (k *azureKeys) do(ctx context.Context, operation, version, value string) (kid, text string, err error) {
	_, key, _ := strings.Cut(k.place.Key, "/")
	at := k.place.Endpoint.JoinPath("keys", key, version, operation)
	at.RawQuery = "api-version=" + azureVersion
	var out struct {
		Kid   string
		Value string
	}
	err = post(ctx, k.http, at.String(), map[string]string{"alg": azureAlgorithm, "value": value}, &out, func(r *http.Request, _ []byte) error {
		token, err := k.identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{k.scope()}})
		if err != nil {
			return fmt.Errorf("%w: %w", cloud.ErrIdentity, err)
		}
		r.Header.Set("Authorization", "Bearer "+token.Token)
		return nil
	})
	return out.Kid, out.Value, err
}

func (k *azureKeys) wrap(ctx context.Context, key []byte) ([]byte, string, error) {
	kid, text, err := k.do(ctx, "wrapkey", k.place.Version, base64.RawURLEncoding.EncodeToString(key))
	if err != nil {
		return nil, "", err
	}
	wrapped, err := base64.RawURLEncoding.DecodeString(text)
	return wrapped, path.Base(kid), err
}

func (k *azureKeys) unwrap(ctx context.Context, wrapped []byte, version string) ([]byte, error) {
	_, text, err := k.do(ctx, "unwrapkey", version, base64.RawURLEncoding.EncodeToString(wrapped))
	if err != nil {
		return nil, err
	}
	return base64.RawURLEncoding.DecodeString(text)
}

func (k *azureKeys) diagnose(a answer) cloud.Trouble {
	switch {
	case a.says("KeyDisabled", "KeyNotFound", "KeyNotYetValid", "KeyExpired"):
		return cloud.NotThere
	case a.code == http.StatusBadRequest:
		return troubleForeign
	}
	return cloud.Unknown
}

package kms

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// OpenAzure opens a key for a user who has a token already.
func OpenAzure(p Place, token string) (Keeper, error) {
	c, err := cloud.NewClients(cloud.Options{Flag: flag, Endpoint: p.Endpoint, Credentials: p.Credentials, Environ: func(string) string { return "" }})
	return keeper{p, &azureKeys{p, c.Data, fixedToken(token)}}, err
}

type fixedToken string

func (f fixedToken) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 || o.Scopes[0] != "https://vault.azure.net/.default" {
		return azcore.AccessToken{}, cloud.ErrIdentity
	}
	return azcore.AccessToken{Token: string(f), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

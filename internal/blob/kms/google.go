package kms

import (
	"context"
	"net/http"
	"strings"

	"golang.org/x/oauth2"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// googleKMS is a key of Google Cloud KMS, by two requests of its JSON API.
type googleKMS struct {
	place Place
	http  *http.Client
}

const googleScope = "https://www.googleapis.com/auth/cloudkms"

func openGoogle(p Place, c cloud.Clients, o cloud.Options) (service, error) {
	source, err := cloud.Google(c, o, googleScope)
	if err != nil {
		return nil, err
	}
	signed := *c.Data
	signed.Transport = &oauth2.Transport{Source: source, Base: c.Data.Transport}
	return &googleKMS{p, &signed}, nil
}

func (k *googleKMS) do(ctx context.Context, operation string, in, out any) error {
	at := k.place.Endpoint.JoinPath("v1", k.place.Key).String() + ":" + operation
	return post(ctx, k.http, at, in, out, func(*http.Request, []byte) error { return nil })
}

func (k *googleKMS) wrap(ctx context.Context, key []byte) ([]byte, string, error) {
	var out struct {
		Name       string // of the version
		Ciphertext []byte
	}
	err := k.do(ctx, "encrypt", map[string][]byte{"plaintext": key}, &out)
	_, version, _ := strings.Cut(out.Name, "/cryptoKeyVersions/")
	return out.Ciphertext, version, err
}

func (k *googleKMS) unwrap(ctx context.Context, wrapped []byte, _ string) ([]byte, error) {
	var out struct{ Plaintext []byte }
	err := k.do(ctx, "decrypt", map[string][]byte{"ciphertext": wrapped}, &out)
	return out.Plaintext, err
}

func (k *googleKMS) diagnose(a answer) cloud.Trouble {
	switch {
	case a.says("FAILED_PRECONDITION"): // the version is disabled or destroyed
		return cloud.NotThere
	case a.says("INVALID_ARGUMENT"):
		return troubleForeign
	}
	return cloud.Unknown
}

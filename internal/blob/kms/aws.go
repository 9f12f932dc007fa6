package kms

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// awsKMS is a key of AWS KMS: two requests, signed by the signer of its SDK.
type awsKMS struct {
	place    Place
	http     *http.Client
	identity *credentials.Credentials
	signer   *v4.Signer
	now      func() time.Time
}

func openAWS(p Place, c cloud.Clients, o cloud.Options) (service, error) {
	identity, err := cloud.AWS(c, o, p.Region)
	if err != nil {
		return nil, err
	}
	return &awsKMS{p, c.Data, identity, v4.NewSigner(), o.Now}, nil
}

func (k *awsKMS) do(ctx context.Context, operation string, in map[string]any, out any) error {
	if len(k.place.Context) > 0 {
		in["EncryptionContext"] = k.place.Context
	}
	return post(ctx, k.http, k.place.Endpoint.JoinPath("/").String(), in, out, func(r *http.Request, body []byte) error {
		r.Header.Set("Content-Type", "application/x-amz-json-1.1")
		r.Header.Set("X-Amz-Target", "TrentService."+operation)
		id, err := k.identity.GetWithContext(&credentials.CredContext{Client: k.http})
		if err != nil {
			return fmt.Errorf("%w: %w", cloud.ErrIdentity, err)
		}
		sum := sha256.Sum256(body)
		return k.signer.SignHTTP(ctx, aws.Credentials{AccessKeyID: id.AccessKeyID, SecretAccessKey: id.SecretAccessKey, SessionToken: id.SessionToken},
			r, hex.EncodeToString(sum[:]), "kms", k.place.Region, k.now())
	})
}

// The version is the name of the key that an alias stands for. AWS keeps all versions of a
// key, and does not tell which one wrapped.
func (k *awsKMS) wrap(ctx context.Context, key []byte) ([]byte, string, error) {
	var out struct {
		CiphertextBlob []byte
		KeyID          string `json:"KeyId"`
	}
	err := k.do(ctx, "Encrypt", map[string]any{"KeyId": k.place.Key, "Plaintext": key}, &out)
	return out.CiphertextBlob, out.KeyID, err
}

// unwrap names the key that wrapped, so that no other key of the account is taken for it.
func (k *awsKMS) unwrap(ctx context.Context, wrapped []byte, version string) ([]byte, error) {
	if version == "" {
		version = k.place.Key
	}
	var out struct{ Plaintext []byte }
	err := k.do(ctx, "Decrypt", map[string]any{"KeyId": version, "CiphertextBlob": wrapped}, &out)
	return out.Plaintext, err
}

func (k *awsKMS) diagnose(a answer) cloud.Trouble {
	switch {
	case a.says("NotFoundException", "DisabledException", "KMSInvalidStateException", "InvalidArnException"):
		return cloud.NotThere
	case a.says("InvalidCiphertextException", "IncorrectKeyException"):
		return troubleForeign
	case a.says("AccessDeniedException"):
		return cloud.Denied
	case a.says("InvalidSignatureException", "RequestExpired", "SignatureDoesNotMatch") && a.says("Signature expired", "not yet current", "RequestExpired"):
		return cloud.ClockSkew
	case a.says("UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException", "InvalidClientTokenId", "MissingAuthenticationToken", "IncompleteSignature"):
		return cloud.BadIdentity
	case a.says("ThrottlingException", "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException"):
		return cloud.Busy
	}
	return cloud.Unknown
}

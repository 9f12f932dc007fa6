package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// s3 is a bucket of S3, or of a server that speaks its protocol.
type s3 struct {
	core   minio.Core
	bucket string
}

func openS3(p Place, c clients, environ func(string) string) (service, error) {
	identity, err := s3Identity(p, c, environ)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if p.PathStyle {
		lookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(p.Endpoint.Host, &minio.Options{
		Creds: identity, Secure: p.Endpoint.Scheme == "https", Transport: ownAnswers{emptyBodies{c.data.Transport}},
		Region: p.Region, BucketLookup: lookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("the endpoint cannot be used: %w", err)
	}
	core.SetS3EnableDualstack(false) // endpoints inside a network of a cloud have one address
	return &s3{*core, p.Bucket}, nil
}

// emptyBodies sends no body in place of an empty one, whose length would count as
// unknown.
type emptyBodies struct{ next http.RoundTripper }

func (e emptyBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.ContentLength == 0 && r.Body != nil {
		body := r.Body
		r = r.WithContext(r.Context())
		r.Body = http.NoBody
		defer body.Close()
	}
	return e.next.RoundTrip(r)
}

// ownAnswers takes a 404 for an answer only if it is S3's own. A proxy in front of the
// bucket answers 404, too, during a redeployment, and the library would take that for an
// object that is not there.
type ownAnswers struct{ next http.RoundTripper }

func (o ownAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	var answer struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if err := xml.Unmarshal(body, &answer); err != nil || answer.Code == "" {
		return nil, fmt.Errorf("the answer %s does not come from S3: %q", resp.Status, brief{errors.New(string(body))})
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// s3Identity is the chain of AWS: keys in the environment, then the file of profiles,
// then the role of a ServiceAccount (IRSA, EKS Pod Identity) or of a task, and, if the
// operator allows it, the role of the machine.
func s3Identity(p Place, c clients, environ func(string) string) (*credentials.Credentials, error) {
	switch {
	case p.Credentials == fromNowhere:
		return credentials.NewStaticV4("", "", ""), nil
	case environ("AWS_ACCESS_KEY_ID") != "":
		return credentials.NewStaticV4(environ("AWS_ACCESS_KEY_ID"), environ("AWS_SECRET_ACCESS_KEY"), environ("AWS_SESSION_TOKEN")), nil
	case environ("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return credentials.New(identified{&credentials.IAM{Client: c.data, Region: p.Region}}), nil
	case environ("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "", environ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return credentials.New(identified{&credentials.IAM{Client: c.metadata}}), nil
	}
	file := &credentials.FileAWSCredentials{}
	if _, err := file.RetrieveWithCredContext(nil); err == nil {
		return credentials.New(file), nil
	} else if named := environ("AWS_SHARED_CREDENTIALS_FILE"); named != "" && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading AWS_SHARED_CREDENTIALS_FILE %s: %w", named, err)
	}
	if p.Credentials != fromMetadata {
		return nil, noIdentity(S3)
	}
	return credentials.New(identified{&credentials.IAM{Client: c.metadata}}), nil
}

// identified marks the errors of a source of credentials.
type identified struct{ *credentials.IAM }

func (i identified) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	v, err := i.IAM.RetrieveWithCredContext(c)
	if err != nil {
		return v, fmt.Errorf("%w: %w", errIdentity, err)
	}
	return v, nil
}

func (b *s3) put(ctx context.Context, name string, c *content) error {
	body, err := c.rewound()
	if err != nil {
		return err
	}
	_, err = b.core.PutObject(ctx, b.bucket, name, body, c.size, "", c.sha256, minio.PutObjectOptions{ContentType: octets})
	return err
}

const octets = "application/octet-stream"

func (b *s3) get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, _, _, err := b.core.GetObject(ctx, b.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (b *s3) remove(ctx context.Context, name string) error {
	return b.core.RemoveObject(ctx, b.bucket, name, minio.RemoveObjectOptions{})
}

func (b *s3) list(ctx context.Context, prefix string, each func(name string)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing when the loop does
	defer cancel()
	for object := range b.core.Client.ListObjects(ctx, b.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return object.Err
		}
		each(object.Key)
	}
	return ctx.Err()
}

func (b *s3) diagnose(err error) diagnosis {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return transport(err)
	}
	switch answer.Code {
	case minio.NoSuchKey:
		return diagnosis{trouble: absent}
	case minio.NoSuchBucket:
		return diagnosis{trouble: noBucket}
	case minio.AccessDenied, "AllAccessDisabled":
		return diagnosis{trouble: denied}
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidClientTokenId":
		return diagnosis{trouble: badIdentity}
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion", "IllegalLocationConstraintException":
		return diagnosis{trouble: wrongRegion, region: answer.Region}
	case "RequestTimeTooSkewed":
		return diagnosis{trouble: clockSkew}
	case "SlowDown", "InternalError", "RequestTimeout", "ServiceUnavailable", "Throttling":
		return diagnosis{trouble: busy}
	}
	if answer.StatusCode == http.StatusMovedPermanently {
		return diagnosis{trouble: wrongRegion, region: answer.Region}
	}
	return status(answer.StatusCode)
}

package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// s3 is a bucket of S3, or of a server that speaks its protocol.
type s3 struct {
	core   minio.Core
	bucket string
}

func openS3(p Place, c cloud.Clients, o cloud.Options) (service, error) {
	identity, err := cloud.AWS(c, o, p.Region)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if p.PathStyle {
		lookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(p.Endpoint.Host, &minio.Options{
		Creds: identity, Secure: p.Endpoint.Scheme == "https", Transport: ownAnswers{emptyBodies{c.Data.Transport}},
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

func (b *s3) put(ctx context.Context, name string, c *content, old *blob.Version) (blob.Version, error) {
	body, err := c.rewound()
	if err != nil {
		return blob.None, err
	}
	o := minio.PutObjectOptions{ContentType: octets}
	switch {
	case old == nil:
	case *old == blob.None:
		o.SetMatchETagExcept("*")
	default:
		o.SetMatchETag(string(*old))
	}
	info, err := b.core.PutObject(ctx, b.bucket, name, body, c.size, "", c.sha256, o)
	if err != nil {
		return blob.None, err
	}
	return blob.Version(info.ETag), nil
}

const octets = "application/octet-stream"

func (b *s3) get(ctx context.Context, name string, from int64, version blob.Version) (object, error) {
	var o minio.GetObjectOptions
	var err error
	if from > 0 {
		err = o.SetRange(from, 0)
	}
	if version != blob.None {
		err = errors.Join(err, o.SetMatchETag(string(version)))
	}
	if err != nil {
		return object{}, err
	}
	r, info, header, err := b.core.GetObject(ctx, b.bucket, name, o)
	if err != nil {
		return object{}, err
	}
	return object{body: r, version: blob.Version(info.ETag), size: info.Size, modified: info.LastModified, part: header.Get("Content-Range")}, nil
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
		return diagnosis{trouble: cloud.Absent}
	case minio.PreconditionFailed:
		return diagnosis{trouble: cloud.Changed}
	case "NotImplemented":
		return diagnosis{trouble: cloud.Unknowing}
	case minio.NoSuchBucket:
		return diagnosis{trouble: cloud.NotThere}
	case minio.AccessDenied, "AllAccessDisabled":
		return diagnosis{trouble: cloud.Denied}
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidClientTokenId":
		return diagnosis{trouble: cloud.BadIdentity}
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion", "IllegalLocationConstraintException":
		return diagnosis{trouble: cloud.WrongRegion, region: answer.Region}
	case "RequestTimeTooSkewed":
		return diagnosis{trouble: cloud.ClockSkew}
	case "ConditionalRequestConflict", "SlowDown", "InternalError", "RequestTimeout", "ServiceUnavailable", "Throttling":
		return diagnosis{trouble: cloud.Busy}
	}
	if answer.StatusCode == http.StatusMovedPermanently {
		return diagnosis{trouble: cloud.WrongRegion, region: answer.Region}
	}
	return status(answer.StatusCode)
}

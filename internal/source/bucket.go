package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Bucket fetches the objects of an S3-compatible bucket.
type Bucket struct {
	Endpoint  string // host[:port]
	Name      string
	Prefix    string // of the keys to take; they keep it
	Region    string // asked for if empty
	AccessKey string // empty asks anonymously
	SecretKey secret.Text
	CA, Cert  []byte // PEM
	Key       secret.Text
	Insecure  bool    // over http, where the operator allows it
	Ignore    *string // rules in the form of a .gitignore file

	Out     *outbound.Client
	Scratch string
	Limits  archive.Limits
}

var _ Fetcher = (*Bucket)(nil)

// item is one object, as it was when the bucket was listed.
type item struct {
	key, etag string
	size      int64
}

// Resolve lists the bucket. The revision is a digest over names and entity
// tags, so that it changes when any object does.
func (b *Bucket) Resolve(ctx context.Context) (Found, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing when the loop does
	defer cancel()
	client, done, err := b.open()
	if err != nil {
		return Found{}, err
	}
	defer done()
	var items []item
	limits, entries := b.Limits, 50_000
	if limits.Entries > 0 {
		entries = limits.Entries
	}
	for object := range client.ListObjects(ctx, b.Name, minio.ListObjectsOptions{Prefix: b.Prefix, Recursive: true}) {
		if object.Err != nil {
			return Found{}, bucketFault("listing the bucket", object.Err)
		}
		if len(items) == entries {
			return Found{}, invalid(archive.Reason, "the bucket holds more than %d objects", entries)
		}
		if !strings.HasSuffix(object.Key, "/") { // such objects stand for directories
			items = append(items, item{object.Key, object.ETag, object.Size})
		}
	}
	if items, err = b.wanted(ctx, client, items); err != nil {
		return Found{}, err
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
	sum := sha256.New()
	for _, i := range items {
		fmt.Fprintf(sum, "%q %q\n", i.key, i.etag)
	}
	return Found{Revision: "sha256:" + hex.EncodeToString(sum.Sum(nil)), handle: items}, nil
}

// wanted drops what the rules in the bucket and those of the source ignore.
func (b *Bucket) wanted(ctx context.Context, client *minio.Client, items []item) ([]item, error) {
	rules := ignoreRules{own: b.Ignore}
	skip, err := rules.with(nil)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(items, func(i item) bool { return i.key == ignoreFile }) {
		object, err := client.GetObject(ctx, b.Name, ignoreFile, minio.GetObjectOptions{})
		if err != nil {
			return nil, bucketFault("reading "+ignoreFile, err)
		}
		defer object.Close()
		patterns, err := readIgnore(object, nil)
		if err != nil {
			return nil, bucketFault("reading "+ignoreFile, err)
		}
		if skip, err = rules.with(patterns); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(items, func(i item) bool { return i.key == ignoreFile || skip(i.key, false) }), nil
}

// Fetch gets the objects that were listed, and only as they were listed.
func (b *Bucket) Fetch(ctx context.Context, found Found, w io.Writer) (map[string]string, error) {
	items, ok := found.handle.([]item)
	if !ok {
		return nil, fmt.Errorf("fetching %q: it was not found in a bucket", found.Revision)
	}
	client, done, err := b.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return nil, scratch(b.Scratch, func(dir string) error {
		tree, err := archive.NewTree(dir, b.Limits)
		if err != nil {
			return err
		}
		defer tree.Close()
		for _, i := range items {
			if err := b.object(ctx, client, i, tree); err != nil {
				return bucketFault(fmt.Sprintf("fetching the object %q", i.key), err)
			}
		}
		return archive.Pack(dir, nil, w, b.Limits)
	})
}

func (b *Bucket) object(ctx context.Context, client *minio.Client, i item, tree *archive.Tree) error {
	var options minio.GetObjectOptions
	if err := options.SetMatchETag(i.etag); err != nil {
		return err
	}
	object, err := client.GetObject(ctx, b.Name, i.key, options)
	if err != nil {
		return err
	}
	defer object.Close()
	return tree.Write(i.key, false, i.size, object)
}

// open returns a client and the function that closes it.
func (b *Bucket) open() (*minio.Client, func(), error) {
	scheme := "https"
	if b.Insecure {
		scheme = "http"
	}
	u, err := url.Parse(scheme + "://" + b.Endpoint)
	if err != nil || u.Host != b.Endpoint || u.Hostname() == "" {
		return nil, nil, invalid(ReasonURL, "the endpoint is no host and port")
	}
	h, err := b.Out.HTTP(outbound.Options{
		PlainHTTP: b.Insecure && b.Out.PlainHTTP(),
		CA:        b.CA, Cert: b.Cert, Key: []byte(b.Key.Reveal()),
	})
	if err != nil {
		return nil, nil, err
	}
	options := &minio.Options{Secure: !b.Insecure, Region: b.Region, Transport: pageCap{h.Transport}, MaxRetries: 3}
	if b.AccessKey != "" {
		options.Creds = credentials.NewStaticV4(b.AccessKey, b.SecretKey.Reveal(), "")
	}
	client, err := minio.New(b.Endpoint, options)
	if err != nil {
		return nil, nil, invalid(ReasonURL, "the endpoint cannot be used: %w", err)
	}
	return client, h.CloseIdleConnections, nil
}

// mostPage bounds one page of a list of objects, and where a bucket is, which are held in
// memory. A page has a thousand objects.
const mostPage = 16 << 20

// pageCap refuses larger ones. Objects have the bounds of what is fetched.
type pageCap struct{ http.RoundTripper }

func (c pageCap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if q := r.URL.Query(); err == nil && (q.Has("list-type") || q.Has("location")) {
		left := new(atomic.Int64)
		left.Store(mostPage)
		resp.Body = &cappedAnswer{resp.Body, left, invalid(ReasonBucket, "the server answers with a list of objects of more than %d MiB, which is no page of S3", mostPage>>20)}
	}
	return resp, err
}

// bucketFault gives an error of a bucket its kind.
func bucketFault(doing string, err error) error {
	if fault.Of(err) != fault.Broken {
		return fmt.Errorf("%s: %w", doing, err)
	}
	kind, reason := fault.Broken, ReasonBucket
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		switch {
		case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
			kind, reason = fault.Denied, ReasonAuth
		case answer.StatusCode == http.StatusNotFound:
			kind = fault.Missing
		case answer.StatusCode == http.StatusPreconditionFailed:
			kind = fault.Conflict // it changed while it was fetched
		}
	}
	return fault.New(kind, reason, fmt.Errorf("%s: %w", doing, err))
}

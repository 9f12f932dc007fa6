package bucket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// gcs is a bucket of Google Cloud Storage, by its JSON API. Records need four of its
// requests; the library for the rest of it would be a quarter of the program.
type gcs struct {
	http   *http.Client
	base   *url.URL
	bucket string
}

func openGCS(p Place, c cloud.Clients, o cloud.Options) (service, error) {
	source, err := cloud.Google(c, o, gcsScope)
	if err != nil {
		return nil, err
	}
	if source != nil {
		c.Data.Transport = &oauth2.Transport{Source: source, Base: c.Data.Transport}
	}
	return &gcs{c.Data, p.Endpoint, p.Bucket}, nil
}

const gcsScope = "https://www.googleapis.com/auth/devstorage.read_write"

// do makes a request below the endpoint. Each part of the path is one element, whatever
// it holds.
func (g *gcs) do(ctx context.Context, method string, query url.Values, body io.Reader, size int64, path ...string) (*http.Response, error) {
	return g.send(ctx, method, nil, query, body, size, path...)
}

// send is do with headers.
func (g *gcs) send(ctx context.Context, method string, header http.Header, query url.Values, body io.Reader, size int64, path ...string) (*http.Response, error) {
	u := *g.base.JoinPath()
	for _, part := range path {
		u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/") + "/" + url.PathEscape(part)
		u.Path = strings.TrimSuffix(u.Path, "/") + "/" + part
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	if body != nil {
		req.ContentLength = size
		req.Header.Set("Content-Type", octets)
		if size == 0 {
			req.Body = http.NoBody // else it would be of unknown length
		}
	}
	resp, err := g.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	return nil, gcsError{resp.StatusCode, string(text)}
}

// gcsError is an answer that is no success.
type gcsError struct {
	code int
	text string
}

func (e gcsError) Error() string {
	var answer struct{ Error struct{ Message string } }
	if err := json.Unmarshal([]byte(e.text), &answer); err == nil && answer.Error.Message != "" {
		return answer.Error.Message
	}
	return fmt.Sprintf("%d %s: %s", e.code, http.StatusText(e.code), e.text)
}

func (g *gcs) put(ctx context.Context, name string, c *content, old *blob.Version) (blob.Version, error) {
	body, err := c.rewound()
	if err != nil {
		return blob.None, err
	}
	query := url.Values{"uploadType": {"media"}, "name": {name}, "fields": {"name,generation"}}
	if old != nil {
		query.Set("ifGenerationMatch", cmp.Or(string(*old), "0"))
	}
	resp, err := g.do(ctx, http.MethodPost, query, body, c.size, "upload", "storage", "v1", "b", g.bucket, "o")
	if err != nil {
		return blob.None, err
	}
	defer resp.Body.Close()
	var made struct{ Generation string }
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&made)
	return blob.Version(made.Generation), err
}

func (g *gcs) get(ctx context.Context, name string, from int64, version blob.Version) (object, error) {
	query, header := url.Values{"alt": {"media"}}, http.Header{}
	if from > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	if version != blob.None {
		query.Set("ifGenerationMatch", string(version))
	}
	resp, err := g.send(ctx, http.MethodGet, header, query, nil, 0, g.object(name)...)
	if err != nil {
		return object{}, g.absent(ctx, err)
	}
	o := object{body: resp.Body, version: blob.Version(resp.Header.Get("X-Goog-Generation")), size: resp.ContentLength, part: resp.Header.Get("Content-Range")}
	if o.modified, err = http.ParseTime(resp.Header.Get("Last-Modified")); err != nil {
		return object{}, errors.Join(fmt.Errorf("reading the time of an object: %w", err), resp.Body.Close())
	}
	return o, nil
}

func (g *gcs) remove(ctx context.Context, name string) error {
	resp, err := g.do(ctx, http.MethodDelete, nil, nil, 0, g.object(name)...)
	if err != nil {
		return g.absent(ctx, err)
	}
	return resp.Body.Close()
}

func (g *gcs) object(name string) []string {
	return []string{"storage", "v1", "b", g.bucket, "o", name}
}

// absent tells an object that is not there from a bucket that is not there, which the
// service answers in the same way.
func (g *gcs) absent(ctx context.Context, err error) error {
	var answer gcsError
	if !errors.As(err, &answer) || answer.code != http.StatusNotFound {
		return err
	}
	if _, err := g.page(ctx, url.Values{"maxResults": {"1"}}); err != nil {
		return err
	}
	return errAbsent
}

type gcsPage struct {
	Items         []struct{ Name string }
	NextPageToken string
}

func (g *gcs) page(ctx context.Context, query url.Values) (page gcsPage, err error) {
	query.Set("fields", "items(name),nextPageToken")
	resp, err := g.do(ctx, http.MethodGet, query, nil, 0, "storage", "v1", "b", g.bucket, "o")
	if err != nil {
		return page, err
	}
	defer resp.Body.Close()
	return page, json.NewDecoder(resp.Body).Decode(&page)
}

func (g *gcs) list(ctx context.Context, prefix string, each func(name string)) error {
	query := url.Values{"prefix": {prefix}}
	for {
		page, err := g.page(ctx, query)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			each(item.Name)
		}
		if page.NextPageToken == "" {
			return nil
		}
		query.Set("pageToken", page.NextPageToken)
	}
}

func (g *gcs) diagnose(err error) diagnosis {
	var answer gcsError
	switch {
	case !errors.As(err, &answer):
		return transport(err)
	case answer.code == http.StatusUnauthorized && strings.Contains(answer.text, "clock"):
		return diagnosis{trouble: cloud.ClockSkew}
	}
	return status(answer.code)
}

package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// gcs is a bucket of Google Cloud Storage, by its JSON API. Records need four of its
// requests; the library for the rest of it would be a quarter of the program.
type gcs struct {
	http   *http.Client
	base   *url.URL
	bucket string
}

func openGCS(p Place, c clients, environ func(string) string) (service, error) {
	source, err := gcsIdentity(p, c, environ)
	if err != nil {
		return nil, err
	}
	if source != nil {
		c.data.Transport = &oauth2.Transport{Source: source, Base: c.data.Transport}
	}
	return &gcs{c.data, p.Endpoint, p.Bucket}, nil
}

const gcsScope = "https://www.googleapis.com/auth/devstorage.read_write"

// credentialsFile is as much of a file of credentials as choosing its type takes.
type credentialsFile struct {
	Type google.CredentialsType `json:"type"`
}

// gcsIdentity is the chain of Google: the file that the environment names, which may
// federate the identity of a ServiceAccount, and, if the operator allows it, the
// metadata service, as in GKE.
func gcsIdentity(p Place, c clients, environ func(string) string) (oauth2.TokenSource, error) {
	if p.Credentials == fromNowhere {
		return nil, nil
	}
	if name := environ("GOOGLE_APPLICATION_CREDENTIALS"); name != "" {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading GOOGLE_APPLICATION_CREDENTIALS: %w", err)
		}
		var file credentialsFile
		if err := json.Unmarshal(b, &file); err != nil {
			return nil, fmt.Errorf("reading GOOGLE_APPLICATION_CREDENTIALS %s: %w", name, err)
		}
		// The client of the context makes the requests for tokens, now and later.
		tokens := *c.data
		found, err := google.CredentialsFromJSONWithType(context.WithValue(context.Background(), oauth2.HTTPClient, &tokens), b, file.Type, gcsScope)
		if err != nil {
			return nil, fmt.Errorf("reading GOOGLE_APPLICATION_CREDENTIALS %s: %w", name, err)
		}
		return named{found.TokenSource}, nil
	}
	if p.Credentials != fromMetadata {
		return nil, noIdentity(GCS)
	}
	host := environ("GCE_METADATA_HOST")
	if host == "" {
		host = ofMachine[0]
	}
	return oauth2.ReuseTokenSource(nil, metadataTokens{c.metadata, "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token"}), nil
}

// named marks the errors of a source of tokens.
type named struct{ oauth2.TokenSource }

func (n named) Token() (*oauth2.Token, error) {
	token, err := n.TokenSource.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errIdentity, err)
	}
	return token, nil
}

// metadataTokens asks the metadata service of a machine, or of a node in GKE.
type metadataTokens struct {
	http *http.Client
	url  string
}

func (m metadataTokens) Token() (*oauth2.Token, error) {
	req, err := http.NewRequest(http.MethodGet, m.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errIdentity, err)
	}
	defer resp.Body.Close()
	var answer struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
		Type    string `json:"token_type"`
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: the metadata service answers %s", errIdentity, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%w: %w", errIdentity, err)
	}
	return &oauth2.Token{AccessToken: answer.Token, TokenType: answer.Type, Expiry: time.Now().Add(time.Duration(answer.Expires) * time.Second)}, nil
}

// do makes a request below the endpoint. Each part of the path is one element, whatever
// it holds.
func (g *gcs) do(ctx context.Context, method string, query url.Values, body io.Reader, size int64, path ...string) (*http.Response, error) {
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

func (g *gcs) put(ctx context.Context, name string, c *content) error {
	body, err := c.rewound()
	if err != nil {
		return err
	}
	resp, err := g.do(ctx, http.MethodPost, url.Values{"uploadType": {"media"}, "name": {name}, "fields": {"name"}}, body, c.size, "upload", "storage", "v1", "b", g.bucket, "o")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (g *gcs) get(ctx context.Context, name string) (io.ReadCloser, error) {
	resp, err := g.do(ctx, http.MethodGet, url.Values{"alt": {"media"}}, nil, 0, g.object(name)...)
	if err != nil {
		return nil, g.absent(ctx, err)
	}
	return resp.Body, nil
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
		return diagnosis{trouble: clockSkew}
	}
	return status(answer.code)
}

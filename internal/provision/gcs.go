package provision

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// gcs is a bucket of Google Cloud Storage.
type gcs struct {
	bucket, prefix, workspace   string
	project, location, kms, api string
	http                        *http.Client
	tokens                      oauth2.TokenSource
}

// bucketDocument is as much of a bucket as Terrier sets.
type bucketDocument struct {
	Name       string      `json:"name,omitempty"`
	Location   string      `json:"location,omitempty"`
	Versioning *enabled    `json:"versioning,omitempty"`
	IAM        *iam        `json:"iamConfiguration,omitempty"`
	Encryption *encryption `json:"encryption,omitempty"`
}

type enabled struct {
	Enabled bool `json:"enabled"`
}

type iam struct {
	Uniform *enabled `json:"uniformBucketLevelAccess,omitempty"`
	Public  string   `json:"publicAccessPrevention,omitempty"`
}

type encryption struct {
	Key string `json:"defaultKmsKeyName"`
}

func (p Plugins) openGCS(_ context.Context, r backend.Request) (place, error) {
	b, _ := backend.Find(backend.GCS)
	block, err := b.Render(r)
	if err != nil {
		return nil, err
	}
	g := &gcs{
		bucket: r.Settings["bucket"], prefix: block.Text("prefix"), workspace: cmp.Or(r.Stack.Workspace, "default"),
		project:  cmp.Or(r.Settings["project"], p.Environ("GOOGLE_PROJECT"), p.Environ("GOOGLE_CLOUD_PROJECT")),
		location: r.Settings["location"], kms: r.Settings["kms_encryption_key"],
		api: cmp.Or(strings.TrimSuffix(r.Settings["endpoint"], "/"), "https://storage.googleapis.com"),
	}
	c, o, err := p.clients(backend.GCS, g.api)
	if err != nil {
		return nil, err
	}
	g.http = c.Data
	if token := p.Environ("GOOGLE_OAUTH_ACCESS_TOKEN"); token != "" {
		g.tokens = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
		return g, nil
	}
	g.tokens, err = cloud.Google(c, o, "https://www.googleapis.com/auth/devstorage.full_control")
	return g, err
}

// do makes one request; in and out may be nil.
func (g *gcs) do(ctx context.Context, method, path string, query url.Values, in, out any) (answer, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return answer{}, err
		}
	}
	a, err := g.send(ctx, method, "/storage/v1/b"+path+"?"+query.Encode(), body)
	if err == nil && a.ok() && out != nil {
		err = json.Unmarshal(a.body, out)
	}
	return a, err
}

// send sends JSON; path has the query.
func (g *gcs) send(ctx context.Context, method, path string, body []byte) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, g.api+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	token, err := g.tokens.Token()
	if err != nil {
		return answer{}, fmt.Errorf("there are no credentials of Google in %s, and it has no identity (%w). Set GOOGLE_APPLICATION_CREDENTIALS there, or give its ServiceAccount an identity", backend.Environment, err)
	}
	token.SetAuthHeader(r)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return send(g.http, r)
}

// told is an error of the service.
func (g *gcs) told(doing string, a answer) error {
	var e struct{ Error struct{ Message string } }
	_ = json.Unmarshal(a.body, &e) // the status says enough otherwise
	return fmt.Errorf("%s %s: %s", doing, g.what(), cmp.Or(e.Error.Message, fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))))
}

func (g *gcs) what() string { return "the bucket " + g.bucket }

func (g *gcs) read(ctx context.Context) (d bucketDocument, there bool, err error) {
	a, err := g.do(ctx, http.MethodGet, "/"+g.bucket, url.Values{"projection": {"noAcl"}}, nil, &d)
	if err == nil && !a.ok() && a.status != http.StatusNotFound {
		err = g.told("finding", a)
	}
	return d, a.ok(), err
}

func (g *gcs) there(ctx context.Context) (bool, error) {
	_, there, err := g.read(ctx)
	return there, err
}

func (g *gcs) create(ctx context.Context) error {
	if g.project == "" {
		return &backend.Error{Field: "project", Message: fmt.Sprintf("is missing, and %s does not exist: a bucket belongs to a project", g.what())}
	}
	d := bucketDocument{Name: g.bucket, Location: g.location, Versioning: &enabled{true}, IAM: &iam{&enabled{true}, "enforced"}}
	if g.kms != "" {
		d.Encryption = &encryption{g.kms}
	}
	a, err := g.do(ctx, http.MethodPost, "", url.Values{"project": {g.project}}, d, nil)
	if err != nil || a.ok() {
		return err
	}
	if a.status == http.StatusConflict {
		if there, err := g.there(ctx); err == nil && there { // another run was faster
			return nil
		}
		return &backend.Error{Field: "bucket", Message: fmt.Sprintf("is %s, and another project has a bucket of that name: choose another one", g.bucket)}
	}
	return g.told("creating", a)
}

func (g *gcs) traits() []trait {
	has := func(what func(bucketDocument) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			d, _, err := g.read(ctx)
			return what(d), err
		}
	}
	set := func(d bucketDocument) func(context.Context) error {
		return func(ctx context.Context) error {
			a, err := g.do(ctx, http.MethodPatch, "/"+g.bucket, nil, d, nil)
			if err == nil && !a.ok() {
				err = g.told("changing", a)
			}
			return err
		}
	}
	return []trait{
		{"versioning", has(func(d bucketDocument) bool { return d.Versioning != nil && d.Versioning.Enabled }), set(bucketDocument{Versioning: &enabled{true}})},
		{"uniform access", has(func(d bucketDocument) bool { return d.IAM != nil && d.IAM.Uniform != nil && d.IAM.Uniform.Enabled }), set(bucketDocument{IAM: &iam{Uniform: &enabled{true}}})},
		{"the block of public access", has(func(d bucketDocument) bool { return d.IAM != nil && d.IAM.Public == "enforced" }), set(bucketDocument{IAM: &iam{Public: "enforced"}})},
	}
}

func (g *gcs) vacant(ctx context.Context) (bool, error) {
	var list struct{ Items []struct{ Name string } }
	a, err := g.do(ctx, http.MethodGet, "/"+g.bucket+"/o", url.Values{"maxResults": {"1"}}, nil, &list)
	if err == nil && !a.ok() {
		err = g.told("listing", a)
	}
	return len(list.Items) == 0, err
}

func (g *gcs) state() string {
	prefix := strings.TrimLeft(g.prefix, "/") // as the engine does
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return prefix + g.workspace + ".tfstate"
}

func (g *gcs) owner() string    { return g.state() + ownerSuffix }
func (g *gcs) objects() objects { return g }

// at is the path of an object in the API.
func (g *gcs) at(object string) string { return "/" + g.bucket + "/o/" + url.PathEscape(object) }

func (g *gcs) hasState(ctx context.Context) (bool, error) {
	a, err := g.do(ctx, http.MethodGet, g.at(g.state()), nil, nil, nil)
	if err == nil && !a.ok() && a.status != http.StatusNotFound {
		err = g.told("finding the state in", a)
	}
	return a.ok(), err
}

// judged is the error of an answer about an object.
func (g *gcs) judged(doing string, a answer, err error) error {
	switch {
	case err != nil || a.ok():
		return err
	case a.status == http.StatusForbidden:
		return errDenied
	}
	return g.told(doing, a)
}

func (g *gcs) get(ctx context.Context, object string) ([]byte, error) {
	a, err := g.do(ctx, http.MethodGet, g.at(object), url.Values{"alt": {"media"}}, nil, nil)
	if err == nil && a.status == http.StatusNotFound {
		return nil, nil
	}
	return a.body, g.judged("reading an object of", a, err)
}

func (g *gcs) put(ctx context.Context, object string, data []byte, absent bool) (bool, error) {
	query := url.Values{"uploadType": {"media"}, "name": {object}}
	if absent {
		query.Set("ifGenerationMatch", "0")
	}
	a, err := g.send(ctx, http.MethodPost, "/upload/storage/v1/b/"+g.bucket+"/o?"+query.Encode(), data)
	if err == nil && absent && a.status == http.StatusPreconditionFailed {
		return false, nil
	}
	err = g.judged("writing an object of", a, err)
	return err == nil, err
}

func (g *gcs) remove(ctx context.Context, object string) error {
	a, err := g.do(ctx, http.MethodDelete, g.at(object), nil, nil, nil)
	if err == nil && a.status == http.StatusNotFound {
		return nil
	}
	return g.judged("removing an object of", a, err)
}

func (g *gcs) removePlace(ctx context.Context) (bool, error) {
	a, err := g.do(ctx, http.MethodDelete, "/"+g.bucket, nil, nil, nil)
	if err == nil && !a.ok() && a.status != http.StatusConflict && a.status != http.StatusPreconditionFailed {
		err = g.told("removing", a)
	}
	return a.ok(), err
}

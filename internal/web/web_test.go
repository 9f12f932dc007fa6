package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/recordstest"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "good-token"

// roles is an Auth of one user whose rights can be revoked.
type roles struct {
	mu     sync.Mutex
	denied map[access.Resource]bool
	asked  []access.Request
	user   access.User
}

func newRoles() *roles {
	return &roles{denied: map[access.Resource]bool{}, user: access.User{Name: "ann"}}
}

func (r *roles) Authenticate(_ context.Context, t secret.Text) (access.User, error) {
	if t.Reveal() != token {
		return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("unknown token"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.user, nil
}

func (r *roles) Authorize(_ context.Context, u access.User, a access.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, a)
	if r.denied[a.Resource] {
		return fault.New(fault.Denied, access.ReasonAccessDenied, fmt.Errorf("%s may not %s", u.Name, a.Verb))
	}
	return nil
}

func (r *roles) deny(list ...access.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range list {
		r.denied[x] = true
	}
}

// rename makes the token that of another user.
func (r *roles) rename(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user = access.User{Name: name}
}

func (r *roles) last() access.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) == 0 {
		return access.Request{}
	}
	return r.asked[len(r.asked)-1]
}

// estate answers about one stack whose records are kept somewhere.
type estate struct {
	query.StackReader // what is not below is asked by no test
	records           query.Records
	err               error
}

func (e estate) id(key query.Key) (query.StackID, error) {
	if e.err != nil {
		return query.StackID{}, e.err
	}
	if key == recordstest.Gone.Key {
		return recordstest.Gone, nil
	}
	if key != recordstest.Stack.Key {
		return query.StackID{}, fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("stack %s does not exist", key))
	}
	return recordstest.Stack, nil
}

func (e estate) List(context.Context, query.Filter) ([]query.Stack, error) {
	return []query.Stack{{Namespace: "apps", Name: "net"}}, e.err
}

func (e estate) Describe(_ context.Context, key query.Key) (query.Detail, error) {
	id, err := e.id(key)
	return query.Detail{Stack: query.Stack{Namespace: id.Namespace, Name: id.Name}}, err
}

func (e estate) Explain(_ context.Context, key query.Key) (query.Explanation, error) {
	_, err := e.id(key)
	return query.Explanation{}, err
}

func (e estate) Runs(ctx context.Context, key query.Key) ([]runner.Report, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.Runs(ctx, id)
}

func (e estate) Run(ctx context.Context, key query.Key, run string) (runner.Report, error) {
	id, err := e.id(key)
	if err != nil {
		return runner.Report{}, err
	}
	return e.records.Run(ctx, id, run)
}

func (e estate) Log(ctx context.Context, key query.Key, run string, o query.LogOptions) (io.ReadCloser, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.Log(ctx, id, run, o)
}

func (e estate) Plan(ctx context.Context, key query.Key, digest string) (query.PlanDocument, error) {
	id, err := e.id(key)
	if err != nil {
		return query.PlanDocument{}, err
	}
	r, err := e.records.Plan(ctx, id, digest)
	if err != nil {
		return query.PlanDocument{}, err
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	return query.PlanDocument{Document: raw}, err
}

func (e estate) StateVersions(ctx context.Context, key query.Key) (query.KeptStates, error) {
	id, err := e.id(key)
	if err != nil {
		return query.KeptStates{}, err
	}
	return e.records.States(ctx, id)
}

func (e estate) Applied(ctx context.Context, key query.Key) ([]query.AppliedPlan, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.Applied(ctx, id)
}

func (e estate) Verdict(ctx context.Context, key query.Key, digest string) (*query.Verdict, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	v, err := e.records.Verdict(ctx, id, digest)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	return &v, err
}

func (e estate) Uses(ctx context.Context, key query.Key) (usage.Record, error) {
	id, err := e.id(key)
	if err != nil {
		return usage.Record{}, err
	}
	return e.records.Uses(ctx, id)
}

func (e estate) SecretPrints(ctx context.Context, key query.Key) (plan.Prints, error) {
	id, err := e.id(key)
	if err != nil {
		return plan.Prints{}, err
	}
	return e.records.SecretPrints(ctx, id)
}

func (e estate) ServerState(ctx context.Context, key query.Key, name string) (io.ReadCloser, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.State(ctx, id, name)
}

func (e estate) ServerOutgrown(ctx context.Context, key query.Key, digest string) (io.ReadCloser, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.Outgrown(ctx, id, recordstest.Where, digest)
}

func (e estate) KeepOutgrown(ctx context.Context, key query.Key, state []byte) error {
	id, err := e.id(key)
	if err != nil {
		return err
	}
	return e.records.KeepOutgrown(ctx, id, recordstest.Where, state)
}

func (e estate) ServerEncrypt(ctx context.Context, key query.Key, state []byte) ([]byte, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.EncryptState(ctx, id, recordstest.Where, state)
}

func (e estate) StateKeys(ctx context.Context, key query.Key, reason string) (query.StateKeys, error) {
	id, err := e.id(key)
	if err != nil {
		return query.StateKeys{}, err
	}
	return e.records.StateKeys(ctx, id, "Secret "+recordstest.Where.String(), reason)
}

func (e estate) ServerDecrypt(ctx context.Context, key query.Key, document []byte) ([]byte, error) {
	id, err := e.id(key)
	if err != nil {
		return nil, err
	}
	return e.records.DecryptState(ctx, id, recordstest.Where, document)
}

func (e estate) ServerInGit(ctx context.Context, key query.Key) (query.StateInGit, error) {
	id, err := e.id(key)
	if err != nil {
		return query.StateInGit{}, err
	}
	return e.records.StateInGit(ctx, id, recordstest.InGit)
}

func (e estate) ServerReplaceInGit(ctx context.Context, key query.Key, person, over string, state []byte) error {
	id, err := e.id(key)
	if err != nil {
		return err
	}
	return e.records.ReplaceInGit(ctx, id, recordstest.InGit, kube.Replacement{State: state, Over: over, Person: person})
}

// nothing keeps no records.
type nothing struct{}

func (nothing) Get(context.Context, string) ([]byte, error) {
	return nil, fault.New(fault.Missing, "BlobMissing", errors.New("nothing"))
}
func (nothing) List(context.Context, string) ([]string, error) { return nil, nil }
func (nothing) Current(string) (*runner.Report, error)         { return nil, nil }
func (nothing) Open(string, string, string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Missing, "FileMissing", errors.New("nothing"))
}

func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprintf(w, "%s %s %s", name, r.Method, r.URL.Path)
	})
}

func options(auth Auth) Options {
	return Options{
		Stacks: estate{records: query.NewBlobs(nothing{}, nothing{}, time.Millisecond)},
		Auth:   auth, Version: "v1", Hosts: []string{"127.0.0.1"},
		Artifacts: echo("artifacts"), Registry: echo("registry"), Packages: echo("packages"), Identity: echo("identity"),
		Admission: map[string]http.Handler{"/validate-a-kind": echo("admission")}, Hooks: echo("hook"),
		Board: emptyBoard(), UsedBy: &heard{}, Queue: idle{}, AuditLog: blank{},
		Tokens: regtoken.NewBook(&shelf{}, anyNamespace, time.Now, slog.New(slog.DiscardHandler)), LoginLife: time.Hour,
	}
}

// serve starts a real server with TLS and returns a client for it.
func serve(t *testing.T, o Options) (*url.URL, *http.Client) {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true // as browsers and the command line speak
	srv.StartTLS()
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := srv.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return u, c
}

// ask makes one request and returns the answer with its body.
func ask(t *testing.T, c *http.Client, method, address string, edit func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func bearer(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }

// signed adds the token to every request, as the transport of a person does.
type signed struct{ http.RoundTripper }

func (s signed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	bearer(r)
	return s.RoundTripper.RoundTrip(r)
}

// The records read over HTTP are those that are kept.
func TestRemoteIsRecords(t *testing.T) {
	recordstest.Run(t, func(t *testing.T, kept *query.Blobs) query.Records {
		o := options(newRoles())
		o.Stacks = estate{records: kept}
		u, c := serve(t, o)
		c.Transport = signed{c.Transport}
		return client.NewRecords(u, c)
	})
}

// What the server says is wrong arrives as the same fault.
func TestRemoteFaults(t *testing.T) {
	for _, want := range []error{
		fault.New(fault.Denied, "AccessDenied", errors.New("no")),
		fault.New(fault.Missing, "NotFound", errors.New("nowhere")),
		fault.New(fault.Conflict, "PlanChanged", errors.New("another")),
		fault.New(fault.Invalid, "NameInvalid", errors.New("bad")),
		fault.Wait(7*time.Second, "ServerBusy", errors.New("later")),
	} {
		o := options(newRoles())
		o.Stacks = estate{err: want}
		u, c := serve(t, o)
		c.Transport = signed{c.Transport}
		_, err := client.NewRecords(u, c).Runs(t.Context(), recordstest.Stack)
		if fault.Of(err) != fault.Of(want) || fault.Reason(err, "") != fault.Reason(want, "") || err.Error() != want.Error() {
			t.Errorf("Runs() is %v (%s), want %v", err, fault.Of(err), want)
		}
		if f, ok := errors.AsType[*fault.Fault](want); ok && f.After > 0 {
			if got, ok := errors.AsType[*fault.Fault](err); !ok || got.After != f.After {
				t.Errorf("the time to wait is lost: %+v", got)
			}
		}
	}
}

// Internal errors are not shown to clients.
func TestBrokenIsNotTold(t *testing.T) {
	o := options(newRoles())
	o.Stacks = estate{err: errors.New("opening /var/lib/secret: no")}
	u, c := serve(t, o)
	resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/namespaces/apps/stacks/net", bearer)
	if resp.StatusCode != http.StatusInternalServerError || strings.Contains(body, "secret") || !strings.Contains(body, "request ") {
		t.Errorf("%s %s, want 500 with the number of the request only", resp.Status, body)
	}
}

// A panic is an answer as well, and ends nothing else.
func TestPanicIsAnswered(t *testing.T) {
	o := options(newRoles())
	o.Registry = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })
	u, c := serve(t, o)
	resp, body := ask(t, c, http.MethodGet, u.String()+"/v2/", bearer)
	if resp.StatusCode != http.StatusInternalServerError || strings.Contains(body, "secret") {
		t.Errorf("%s %s, want 500 without the reason", resp.Status, body)
	}
}

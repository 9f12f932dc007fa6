package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Remote are the Records as the HTTP API of a server serves them.
type Remote struct {
	base *url.URL
	http *http.Client
}

// NewRemote returns the records that the server at base serves. The client must
// add the credentials of whoever asks, and may bound no request in time: a log
// is followed for as long as its run goes on.
func NewRemote(base *url.URL, c *http.Client) *Remote {
	own := *c
	// The client would send the credentials wherever it is led.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Remote{base: base, http: &own}
}

// requestTime bounds every request but that for a log that is followed.
const requestTime = time.Minute

// Runs implements Records.
func (r *Remote) Runs(ctx context.Context, id query.StackID) ([]query.Report, error) {
	var list struct {
		Items []query.Report `json:"items"`
	}
	err := r.json(ctx, &list, r.path(id, nil, "runs"))
	return list.Items, err
}

// Run implements Records.
func (r *Remote) Run(ctx context.Context, id query.StackID, run string) (query.Report, error) {
	var report query.Report
	err := r.json(ctx, &report, r.path(id, nil, "runs", run, "report"))
	return report, err
}

// Log implements Records.
func (r *Remote) Log(ctx context.Context, id query.StackID, run string, follow bool) (io.ReadCloser, error) {
	if !follow {
		return r.open(ctx, requestTime, r.path(id, nil, "runs", run, "log"))
	}
	return r.follow(ctx, id, run)
}

// Plan implements Records.
func (r *Remote) Plan(ctx context.Context, id query.StackID, digest string) (io.ReadCloser, error) {
	return r.open(ctx, requestTime, r.path(id, url.Values{"digest": {digest}}, "plan", "document"))
}

func (r *Remote) path(id query.StackID, params url.Values, more ...string) string {
	parts := append([]string{"api", "v1", "namespaces", id.Namespace, "stacks", id.Name}, more...)
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	u := r.base.JoinPath(parts...)
	u.RawQuery = params.Encode()
	return u.String()
}

// json reads an answer into v, which is filled only if there is no error.
func (r *Remote) json(ctx context.Context, v any, address string) error {
	body, err := r.open(ctx, requestTime, address)
	if err != nil {
		return err
	}
	err = json.NewDecoder(io.LimitReader(body, query.DocumentBytes)).Decode(v)
	if err := errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", r.base.Host, err)
	}
	return nil
}

func (r *Remote) open(ctx context.Context, within time.Duration, address string) (io.ReadCloser, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if within > 0 {
		bounded, cancel = context.WithTimeout(ctx, within)
	}
	req, err := http.NewRequestWithContext(bounded, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		cancel()
		return nil, r.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		return nil, errors.Join(r.refusal(resp), resp.Body.Close())
	}
	return &answer{resp.Body, cancel}, nil
}

func (r *Remote) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if fault.Of(err) != fault.Broken {
		return err
	}
	return fault.New(fault.Later, access.ReasonUnreachable, fmt.Errorf("the server at %s cannot be reached: %w", r.base.Host, err))
}

// refusal reads what the server says is wrong.
func (r *Remote) refusal(resp *http.Response) error {
	var said command.Refusal
	if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) != nil || said.Error == "" {
		return fmt.Errorf("the server at %s answers %s", r.base.Host, resp.Status)
	}
	f := &fault.Fault{Kind: fault.Broken, Reason: said.Reason, Err: errors.New(said.Error)}
	for _, k := range []fault.Kind{fault.Invalid, fault.Denied, fault.Missing, fault.Conflict, fault.Later} {
		if said.Kind == k {
			f.Kind = k
		}
	}
	if n, err := strconv.Atoi(cmp.Or(resp.Header.Get("Retry-After"), "0")); err == nil {
		f.After = time.Duration(n) * time.Second
	}
	return f
}

// answer is a body whose deadline ends with it.
type answer struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (a *answer) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

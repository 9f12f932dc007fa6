package client

import (
	"bytes"
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

// conn is a connection to the HTTP API of a server.
type conn struct {
	base *url.URL
	http *http.Client
}

// newConn returns a connection to the server at base. The http.Client must add
// the credentials of the user, and may bound no request in time: a log is followed
// for as long as its run goes on.
func newConn(base *url.URL, c *http.Client) *conn {
	own := *c
	// The client would send the credentials wherever a redirect leads.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &conn{base: base, http: &own}
}

// requestTime bounds every request that waits for nothing.
const requestTime = time.Minute

// at is an address below the API.
func (c *conn) at(params url.Values, parts ...string) string {
	all := append([]string{"api", "v1"}, parts...)
	for i := range all {
		all[i] = url.PathEscape(all[i])
	}
	u := c.base.JoinPath(all...)
	u.RawQuery = params.Encode()
	return u.String()
}

func object(key query.Key, kind string, more ...string) []string {
	return append([]string{"namespaces", key.Namespace, kind, key.Name}, more...)
}

// post sends one command and reads its answer into out, unless that is nil.
func (c *conn) post(ctx context.Context, within time.Duration, in, out any, parts ...string) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.send(ctx, within, body, out, c.at(nil, parts...))
}

// send is post of a body that is JSON already.
func (c *conn) send(ctx context.Context, within time.Duration, body []byte, out any, address string) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent:
		err = c.refusal(resp)
	case out != nil:
		err = json.NewDecoder(io.LimitReader(resp.Body, query.DocumentBytes)).Decode(out)
	}
	return errors.Join(err, resp.Body.Close())
}

// json reads an answer into v, which is filled only if there is no error.
func (c *conn) json(ctx context.Context, v any, address string) error {
	body, err := c.open(ctx, requestTime, address)
	if err != nil {
		return err
	}
	err = json.NewDecoder(io.LimitReader(body, query.DocumentBytes)).Decode(v)
	if err := errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", c.base.Host, err)
	}
	return nil
}

func (c *conn) open(ctx context.Context, within time.Duration, address string) (io.ReadCloser, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if within > 0 {
		bounded, cancel = context.WithTimeout(ctx, within)
	}
	req, err := http.NewRequestWithContext(bounded, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		cancel()
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		return nil, errors.Join(c.refusal(resp), resp.Body.Close())
	}
	return &answer{resp.Body, cancel}, nil
}

func (c *conn) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if fault.Of(err) != fault.Broken {
		return err
	}
	return fault.New(fault.Later, access.ReasonUnreachable, fmt.Errorf("the server at %s cannot be reached: %w", c.base.Host, err))
}

// refusal reads what the server says is wrong.
func (c *conn) refusal(resp *http.Response) error {
	var said command.Refusal
	if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) != nil || said.Error == "" {
		return fmt.Errorf("the server at %s answers %s", c.base.Host, resp.Status)
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

func flag(params url.Values, name string, on bool) {
	if on {
		params.Set(name, strconv.FormatBool(on))
	}
}

func text(params url.Values, name, value string) {
	if value != "" {
		params.Set(name, value)
	}
}

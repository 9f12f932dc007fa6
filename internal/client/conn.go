package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	find    func() (peer, error) // once, at the first request
	waiting func(why string)     // see Connection
}

// peer is a server and the way to it.
type peer struct {
	base     *url.URL
	http     *http.Client
	unproven bool // see server
}

// newConn returns a connection to a server. The http.Client must add
// the credentials of the user, and may bound no request in time: a log is followed
// for as long as its run goes on.
func newConn(p peer) *conn {
	own := *p.http
	// The client would send the credentials wherever a redirect leads.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.http = &own
	return &conn{find: func() (peer, error) { return p, nil }}
}

// host is the host of the server, once a request was sent to it.
func (c *conn) host() string {
	p, err := c.find()
	if err != nil {
		return "unknown host"
	}
	return p.base.Host
}

// requestTime bounds every request that waits for nothing.
const requestTime = time.Minute

// endpoint is an address below the API.
type endpoint struct {
	params url.Values
	parts  []string
	beside string // in place of the parts: a path beside the API
}

func (c *conn) at(params url.Values, parts ...string) endpoint {
	return endpoint{params: params, parts: parts}
}

func (a endpoint) below(base *url.URL) string {
	if a.beside != "" {
		return base.JoinPath(a.beside).String()
	}
	all := append([]string{"api", "v1"}, a.parts...)
	for i := range all {
		all[i] = url.PathEscape(all[i])
	}
	u := base.JoinPath(all...)
	u.RawQuery = a.params.Encode()
	return u.String()
}

func object(key query.Key, kind string, more ...string) []string {
	return append([]string{"namespaces", key.Namespace, kind, key.Address()}, more...)
}

// post sends one command and reads its answer into out, unless that is nil.
func (c *conn) post(ctx context.Context, within time.Duration, in, out any, parts ...string) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.send(ctx, within, http.MethodPost, c.at(nil, parts...), body, out)
}

// json reads an answer into v.
func (c *conn) json(ctx context.Context, v any, to endpoint) error {
	return c.send(ctx, requestTime, http.MethodGet, to, nil, v)
}

func get[T any](ctx context.Context, c *conn, to endpoint) (out T, err error) {
	err = c.json(ctx, &out, to)
	return out, err
}

// listed is get of a list that is not a page.
func listed[T any](ctx context.Context, c *conn, to endpoint) ([]T, error) {
	list, err := get[items[T]](ctx, c, to)
	return list.Items, err
}

// send sends a body of JSON and reads the answer into out, unless that is nil.
func (c *conn) send(ctx context.Context, within time.Duration, method string, to endpoint, body []byte, out any) error {
	answer, err := c.do(ctx, within, method, to, body)
	if err != nil {
		return err
	}
	if out != nil {
		err = json.NewDecoder(io.LimitReader(answer, query.DocumentBytes)).Decode(out)
	}
	if err := errors.Join(err, answer.Close()); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", c.host(), err)
	}
	return nil
}

func (c *conn) open(ctx context.Context, within time.Duration, to endpoint) (io.ReadCloser, error) {
	return c.do(ctx, within, http.MethodGet, to, nil)
}

// do sends a request, again if need be. Its time, unless that is zero, ends with the
// returned body.
func (c *conn) do(ctx context.Context, within time.Duration, method string, to endpoint, body []byte) (answer io.ReadCloser, err error) {
	p, err := c.find()
	if err != nil {
		return nil, err
	}
	err = c.repeat(ctx, method, func() (err error) {
		answer, err = p.send(ctx, within, method, to, body)
		return err
	})
	return answer, err
}

// send sends a request once.
func (p peer) send(ctx context.Context, within time.Duration, method string, to endpoint, body []byte) (io.ReadCloser, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if within > 0 {
		bounded, cancel = context.WithTimeout(ctx, within)
	}
	req, err := http.NewRequestWithContext(bounded, method, to.below(p.base), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.http.Do(req)
	if err != nil {
		cancel()
		return nil, p.unreachable(ctx, err)
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return &answer{resp.Body, cancel}, nil
	default:
		defer cancel()
		err := errors.Join(p.refusal(resp), resp.Body.Close())
		if resp.StatusCode == http.StatusNotFound && fault.Of(err) == fault.Broken {
			err = p.registryAlone(bounded, err)
		}
		return nil, err
	}
}

func (p peer) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return p.untrusted(wrong)
	}
	if fault.Of(err) != fault.Broken {
		return err
	}
	return fault.New(fault.Later, access.ReasonUnreachable, fmt.Errorf("the server at %s cannot be reached: %w", p.base.Host, err))
}

// Reasons of faults of a server that the user named.
const (
	ReasonCertificate   = "CertificateNotTrusted"
	ReasonRegistryAlone = "RegistryAlone" // it serves modules and providers, and nothing else
)

// untrusted is the fault of a server whose certificate proves nothing. Another request would
// not change that.
func (p peer) untrusted(err *tls.CertificateVerificationError) error {
	if p.unproven {
		return foreignServer(p.base)
	}
	way := ""
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err.Err); unknown {
		way = ": name its authority with --server-ca or TERRIER_SERVER_CA"
	}
	return fault.New(fault.Invalid, ReasonCertificate, fmt.Errorf("the certificate of %s is not trusted: %w%s", p.base.Host, err.Err, way))
}

// registryAlone is the fault of a server without the HTTP API, if it is a registry; else err.
func (p peer) registryAlone(ctx context.Context, err error) error {
	var services map[string]json.RawMessage
	if p.registry(ctx, http.MethodGet, p.base.JoinPath(discovery...), content{}, &services) != nil || services[modulesService] == nil {
		return err
	}
	return fault.New(fault.Invalid, ReasonRegistryAlone, fmt.Errorf("the server at %s is a registry alone: it has no stacks, no pages about them, and no tokens but those in its file of rights: unset TERRIER_SERVER for the commands about them", p.base.Host))
}

// refusal reads what the server says is wrong.
func (p peer) refusal(resp *http.Response) error {
	var said command.Refusal
	if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) != nil || said.Error == "" {
		return fmt.Errorf("the server at %s answers %s", p.base.Host, resp.Status)
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

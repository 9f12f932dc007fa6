package outbound

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/terrier-iac/terrier/internal/fault"
)

// transport is the http.RoundTripper of one use of a Client. All rules are
// here rather than in http.Client.CheckRedirect, because libraries bring their
// own http.Client and take only a transport.
type transport struct {
	inner     *http.Transport
	own       *http.Transport // inner, when it is not shared
	elsewhere *http.Transport // in place of inner where nothing may show who asks; nil if inner shows no client certificate
	plainHTTP bool
	creds     Credentials
	maxBytes  int64
	userAgent string
	forwards  bool
	count     func(status int, bytes int64)
}

// CloseIdleConnections serves http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	if t.own != nil {
		t.own.CloseIdleConnections()
	}
	if t.elsewhere != nil {
		t.elsewhere.CloseIdleConnections()
	}
}

func (t *transport) RoundTrip(in *http.Request) (*http.Response, error) {
	req, home, err := t.prepare(in)
	if err != nil {
		if in.Body != nil {
			in.Body.Close() // a RoundTripper closes it even when it fails
		}
		return nil, err
	}
	inner := t.inner
	if !home && t.elsewhere != nil {
		inner = t.elsewhere
	}
	resp, err := inner.RoundTrip(req)
	if err != nil {
		t.counted(0, 0)
		return nil, err
	}
	if resp.ContentLength > t.maxBytes {
		resp.Body.Close()
		t.counted(resp.StatusCode, 0)
		return nil, tooLarge(t.maxBytes)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &cappedBody{ReadCloser: resp.Body, left: t.maxBytes, max: t.maxBytes, status: resp.StatusCode, counted: t.counted}
	}
	// http.Client compares pointers to find its way through redirects.
	resp.Request = in
	return resp, nil
}

func (t *transport) counted(status int, bytes int64) {
	if t.count != nil {
		t.count(status, bytes)
	}
}

// crossOrigin are the headers that may follow a redirect to another origin:
// those that say what is wanted, none that can say who asks.
var crossOrigin = []string{"Accept", "Accept-Encoding", "Content-Type", "Git-Protocol", "If-None-Match", "Range", "User-Agent"}

// prepare returns the request as it may go out, and whether it may show who asks:
// no redirect has left the first origin, and that is the one of the credentials.
func (t *transport) prepare(in *http.Request) (out *http.Request, home bool, err error) {
	switch in.URL.Scheme {
	case "https":
	case "http":
		if !t.plainHTTP {
			return nil, false, fault.New(fault.Denied, ReasonInsecure, fmt.Errorf("unencrypted connections to %q are not allowed", in.URL.Host))
		}
	default:
		return nil, false, fault.New(fault.Denied, ReasonInsecure, fmt.Errorf("the scheme %q is not allowed", in.URL.Scheme))
	}
	if in.URL.User != nil {
		return nil, false, fault.New(fault.Denied, ReasonInsecure, fmt.Errorf("the URL of %q holds credentials", in.URL.Host))
	}
	strayed, err := followed(in)
	if err != nil {
		return nil, false, err
	}
	req := in.Clone(in.Context())
	if strayed {
		if in.Body != nil && in.Body != http.NoBody {
			return nil, false, fault.New(fault.Denied, ReasonRedirect, fmt.Errorf("what was sent may not be sent on to %q", in.URL.Host))
		}
		for name := range req.Header {
			if !slices.Contains(crossOrigin, name) {
				delete(req.Header, name)
			}
		}
	}
	home = !strayed && (t.creds.Origin == nil || origin(req.URL) == origin(t.creds.Origin))
	if home && !t.creds.empty() && req.Header.Get("Authorization") == "" {
		if t.creds.Bearer.Empty() {
			req.SetBasicAuth(t.creds.User, t.creds.Password.Reveal())
		} else {
			req.Header.Set("Authorization", "Bearer "+t.creds.Bearer.Reveal())
		}
	}
	if !t.forwards {
		req.Header.Set("User-Agent", t.userAgent)
	}
	return req, home, nil
}

// followed looks back along the redirects that led to req. It reports whether
// they left the origin of the first request; once they did, coming back does
// not count. A redirect from https to http is denied.
func followed(req *http.Request) (strayed bool, err error) {
	here := origin(req.URL)
	for r := req; r.Response != nil && r.Response.Request != nil; {
		before := r.Response.Request
		if before.URL.Scheme == "https" && r.URL.Scheme == "http" {
			return false, fault.New(fault.Denied, ReasonRedirect, fmt.Errorf("%q redirects from https to http", before.URL.Host))
		}
		if origin(before.URL) != here {
			strayed = true
		}
		r = before
	}
	return strayed, nil
}

// cappedBody fails once more than max bytes are read from it.
type cappedBody struct {
	io.ReadCloser
	left, max int64
	status    int
	counted   func(status int, bytes int64)
	read      atomic.Int64
	closed    atomic.Bool
}

func (b *cappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLarge(b.max)
	}
	return n, err
}

// Close says once what was read. A client may close a body while it reads from
// it, and then what came last may be missing.
func (b *cappedBody) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		b.counted(b.status, b.read.Load())
	}
	return b.ReadCloser.Close()
}

func tooLarge(most int64) error {
	return fault.New(fault.Invalid, ReasonTooLarge, fmt.Errorf("the answer is larger than %d bytes", most))
}

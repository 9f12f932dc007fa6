package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/shard"
)

// The headers of a forwarded request.
const (
	headerHop    = "Terrier-Replica-Hop"    // proves that a replica forwarded it
	headerClient = "Terrier-Replica-Client" // the address of the client
	headerMoved  = "Terrier-Replica-Moved"  // of an answer: the request was for another replica, and nothing was done
)

// stall is how long a client may not read.
const stall = 30 * time.Second

// Forward has another replica answer requests: with their host, method, headers and
// body, and with its answers as they come. It forwards no request that was forwarded
// before: the replicas then disagree for a moment.
func (p *Peers) Forward(to shard.Member) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Send(to, w, r, func(err error) { refuse(w, err) })
	})
}

// Send is Forward for one request. It calls refuse if the other replica does not answer;
// the client may be gone by then.
func (p *Peers) Send(to shard.Member, w http.ResponseWriter, r *http.Request, refuse func(error)) {
	target, err := url.Parse(to.URL)
	switch {
	case err != nil || target.Host == "":
		refuse(fmt.Errorf("the replica %s has the address %q, which is no URL", to.ID, to.URL))
		return
	case Forwarded(r.Context()):
		refuse(fault.Wait(retryAfter, ReasonMoved, errors.New("the work is moving to another replica: try again")))
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport: p.forwards.Transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(p.config.Log.Handler(), slog.LevelDebug),
		Rewrite: func(x *httputil.ProxyRequest) {
			x.Out.URL.Scheme, x.Out.URL.Host, x.Out.URL.RawQuery = target.Scheme, target.Host, x.In.URL.RawQuery
			x.Out.Host = x.In.Host
			x.Out.Header.Set(headerHop, p.hop)
			x.Out.Header.Set(headerClient, x.In.RemoteAddr)
			x.Out.Header.Set(headerTo, to.ID)
		},
		ModifyResponse: func(answer *http.Response) error {
			if answer.Header.Get(headerMoved) != "" {
				return errMoved
			}
			clear(w.Header()) // the answer is the other replica's
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			if _, large := errors.AsType[*http.MaxBytesError](err); !large {
				err = unreachable(to, err)
			}
			if r.Context().Err() == nil {
				p.config.Log.Warn("request not forwarded", "replica", to.ID, "path", r.URL.Path, "err", err)
			}
			refuse(err)
		},
	}
	proxy.ServeHTTP(&reader{w, http.NewResponseController(w)}, r)
}

// errMoved is the answer of a replica to a request for the one that was at its address before.
var errMoved = errors.New("another replica is at its address")

// reader is the client of a forwarded request: an answer that it does not read ends.
type reader struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (c *reader) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Write resets the deadline afterwards: over HTTP/2 an expired one ends an answer even
// if nothing is written.
func (c *reader) Write(b []byte) (int, error) {
	if err := c.deadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	n, err := c.ResponseWriter.Write(b)
	if err == nil {
		err = c.control.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	return n, errors.Join(err, c.deadline(time.Time{}))
}

func (c *reader) deadline(t time.Time) error {
	if err := c.control.SetWriteDeadline(t); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// forwarded marks the context of a request that another replica forwarded.
type forwarded struct{}

// Forwarded reports whether another replica forwarded the request of a context.
func Forwarded(ctx context.Context) bool { return ctx.Value(forwarded{}) != nil }

// Receive serves requests as their clients sent them: one that another replica forwarded
// has the address of its client, and no request has the headers of replicas. One that was
// forwarded to the replica that was at this address before is not served: this one may not
// know the answer yet. It stands before every other handler.
func (p *Peers) Receive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hop, client := r.Header.Get(headerHop), r.Header.Get(headerClient)
		r.Header.Del(headerHop)
		r.Header.Del(headerClient)
		if same(hop, p.hop) {
			to := r.Header.Get(headerTo)
			r.Header.Del(headerTo)
			if to != "" && to != p.config.Me().ID { // a replica of an earlier version names none
				w.Header().Set(headerMoved, "true")
				w.WriteHeader(http.StatusMisdirectedRequest)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), forwarded{}, true))
			r.RemoteAddr = client
		}
		next.ServeHTTP(w, r)
	})
}

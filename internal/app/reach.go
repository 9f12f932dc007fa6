package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// requestTime bounds every request to the API server but a watch, which ends when
// the server ends it. The server has the same limit; a server that has stopped
// answering without closing the connection would block its clients for ever.
const requestTime = time.Minute

// probeTime is how long a health check of the API server may take.
const probeTime = 2 * time.Second

// bound makes every request of the configuration end.
func bound(c *rest.Config, within time.Duration) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, within} })
}

type bounded struct {
	next   http.RoundTripper
	within time.Duration
}

// RoundTrip implements http.RoundTripper. The time includes the reading of the
// answer.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if w := r.URL.Query().Get("watch"); w != "" && w != "0" && w != "false" {
		return b.next.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), b.within, fmt.Errorf("the API server did not answer within %s", b.within))
	resp, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if r.Context().Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		return nil, err
	}
	resp.Body = timed{resp.Body, cancel}
	return resp, nil
}

type timed struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (t timed) Close() error {
	defer t.cancel()
	return t.ReadCloser.Close()
}

// reachable returns a check of the API server. Runs continue while it is
// down.
func (p plane) reachable() (func(context.Context) error, error) {
	server, err := discovery.NewDiscoveryClientForConfig(p.rest())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		if err := server.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return fmt.Errorf("asking the API server: %w", err)
		}
		return nil
	}, nil
}

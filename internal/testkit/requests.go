package testkit

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Requests counts what clients ask an API server for. The zero value has counted
// nothing.
type Requests struct {
	mu   sync.Mutex
	made []*Request
}

// Request is one request. It is counted before the server sees it.
type Request struct {
	Method string
	Path   string

	read atomic.Int64
}

// Bytes is how much of the answer was read so far.
func (r *Request) Bytes() int64 { return r.read.Load() }

// Resource is what was asked for in a namespace, without the name of the object:
// terraforms/status. It is empty for everything else.
func (r *Request) Resource() string {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	i := slices.Index(parts, "namespaces")
	if i <= 0 || len(parts) <= i+2 {
		return ""
	}
	return strings.Join(append(parts[i+2:i+3:i+3], parts[min(i+4, len(parts)):]...), "/")
}

// Of returns a copy of a configuration, whose requests are counted.
func (r *Requests) Of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedRequests{r, next} })
	return config
}

// Take returns what was counted since it was called last.
func (r *Requests) Take() []*Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.made
	r.made = nil
	return made
}

type countedRequests struct {
	to   *Requests
	next http.RoundTripper
}

func (c countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	made := &Request{Method: r.Method, Path: r.URL.Path}
	c.to.mu.Lock()
	c.to.made = append(c.to.made, made)
	c.to.mu.Unlock()
	response, err := c.next.RoundTrip(r)
	if err == nil {
		response.Body = countedBody{response.Body, &made.read}
	}
	return response, err
}

type countedBody struct {
	io.ReadCloser
	read *atomic.Int64
}

func (c countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read.Add(int64(n))
	return n, err
}

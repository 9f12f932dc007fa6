package testkit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy stands before an HTTP server and makes the way to it go wrong. It speaks
// plain HTTP, whatever the server speaks.
type Proxy struct {
	URL string

	to     *url.URL
	server *httptest.Server

	mu     sync.Mutex
	faults []*ProxyFault
	change chan struct{}      // closed when the faults change
	live   context.Context    // of the requests that are open
	hangUp context.CancelFunc // ends them
	struck map[*ProxyFault]int
}

// ProxyFault makes requests go wrong. The first fault that matches a request
// strikes it.
type ProxyFault struct {
	Match func(*http.Request) bool // nil for every request
	Times int                      // how often it strikes; 0 for always

	Delay  time.Duration // before anything else happens
	Cut    bool          // the connection ends in place of an answer
	Hold   bool          // nothing is answered until the faults change; then the connection ends
	Status int           // is answered in the server's place,
	Body   string        // with this,
	Header http.Header
	Lose   bool // the server does what it is asked, and its answer is lost
	Flip   bool // one bit of the answer is another
}

// NewProxy stands before the server at upstream for one test. Through is how the
// server is reached; nil for the ordinary way.
func NewProxy(tb testing.TB, upstream string, through http.RoundTripper) *Proxy {
	tb.Helper()
	to, err := url.Parse(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{to: to, change: make(chan struct{}), struck: map[*ProxyFault]int{}}
	p.live, p.hangUp = context.WithCancel(context.Background())
	back := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) },
		Transport:      through,
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: spoil,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(p.handler(back))
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.Start()
	p.URL = p.server.URL
	tb.Cleanup(func() {
		p.Fault(ProxyFault{Cut: true})
		p.HangUp()
		p.server.Close()
	})
	return p
}

// Fault replaces the faults. None heal the way; what was held is cut.
func (p *Proxy) Fault(faults ...ProxyFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	for _, f := range faults {
		p.faults = append(p.faults, &f)
	}
	close(p.change)
	p.change = make(chan struct{})
}

// HangUp cuts every connection with an open request.
func (p *Proxy) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangUp()
	p.live, p.hangUp = context.WithCancel(context.Background())
}

// Down refuses every request, and cuts those that are open.
func (p *Proxy) Down() {
	p.Fault(ProxyFault{Cut: true})
	p.HangUp()
}

// Struck is how often the faults, in their order, have struck.
func (p *Proxy) Struck() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := []int{}
	for _, f := range p.faults {
		n = append(n, p.struck[f])
	}
	return n
}

type faultKey struct{}

func (p *Proxy) handler(back http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		f, change, live := p.strike(r), p.change, p.live
		p.mu.Unlock()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(live, cancel)()
		if f == nil {
			f = &ProxyFault{}
		}
		if f.Delay > 0 {
			select {
			case <-time.After(f.Delay):
			case <-ctx.Done():
			}
		}
		switch {
		case f.Cut:
			panic(http.ErrAbortHandler)
		case f.Hold:
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client has gone
			select {
			case <-change:
			case <-ctx.Done():
			}
			panic(http.ErrAbortHandler)
		case f.Status != 0:
			for k, v := range f.Header {
				w.Header()[k] = v
			}
			w.WriteHeader(f.Status)
			_, _ = io.WriteString(w, f.Body)
			return
		}
		back.ServeHTTP(w, r.WithContext(context.WithValue(ctx, faultKey{}, f)))
	})
}

// strike is the fault for a request, nil if there is none.
func (p *Proxy) strike(r *http.Request) *ProxyFault {
	i := slices.IndexFunc(p.faults, func(f *ProxyFault) bool {
		return (f.Times == 0 || p.struck[f] < f.Times) && (f.Match == nil || f.Match(r))
	})
	if i < 0 {
		return nil
	}
	p.struck[p.faults[i]]++
	return p.faults[i]
}

var errLost = errors.New("the answer is lost")

// spoil does to an answer what its fault says.
func spoil(r *http.Response) error {
	f, _ := r.Request.Context().Value(faultKey{}).(*ProxyFault)
	switch {
	case f.Lose:
		_, _ = io.Copy(io.Discard, r.Body)
		return errLost
	case f.Flip:
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if len(text) > 0 {
			text[len(text)/2] ^= 1
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	return nil
}

// Proxy returns a proxy in front of the API server, and the same cluster behind it.
func (c *Cluster) Proxy(tb testing.TB) (*Proxy, *Cluster) {
	tb.Helper()
	through, err := rest.TransportFor(c.Config)
	if err != nil {
		tb.Fatal(err)
	}
	p := NewProxy(tb, c.Config.Host, through)
	behind := *c
	behind.Config = &rest.Config{Host: p.URL, QPS: -1}
	behind.Kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: p.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", Namespace: c.Namespace}},
		CurrentContext: "proxy",
	}, behind.Kubeconfig)
	if err != nil {
		tb.Fatal(err)
	}
	return p, &behind
}

// Watching matches the requests by which changes are heard of.
func Watching(r *http.Request) bool {
	return r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "0"
}

// Writing matches the requests that change something of one of these resources,
// terraforms/status for instance, or of any if none is named.
func Writing(resources ...string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		i := slices.Index(parts, "namespaces")
		if i < 0 || i+2 >= len(parts) {
			return len(resources) == 0
		}
		resource := parts[i+2]
		if len(parts) > i+4 {
			resource += "/" + parts[i+4]
		}
		return len(resources) == 0 || slices.Contains(resources, resource)
	}
}

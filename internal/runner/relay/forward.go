package relay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// The bounds of an answer.
const (
	maxArchive  = 16 << 30 // bytes of a package
	maxDocument = 64 << 20 // bytes of a document
	maxReason   = 64 << 10 // bytes of an answer that says why not
	maxMessage  = 1 << 10  // bytes of what is shown of it
	stalled     = time.Minute
	piece       = 64 << 10
	dead        = 30 * time.Second // without a sign of life of the registry, if it speaks HTTP/2
)

// upstream is the client of the registry, and of nothing else.
type upstream struct {
	Upstream
	origin string
	client *http.Client
}

func newUpstream(u Upstream) (*upstream, error) {
	at, err := url.Parse(u.URL)
	if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, fault.New(fault.Invalid, "RegistryInvalid", fmt.Errorf("the registry of runs is at %q, want https://HOST:PORT", u.URL))
	}
	addr, err := netip.ParseAddr(at.Hostname())
	if at.Scheme == "http" && (err != nil || !addr.IsLoopback()) {
		return nil, fault.New(fault.Invalid, "RegistryInvalid", fmt.Errorf("the registry of runs is at %q, want https: the token of a run may not be sent unencrypted", u.URL))
	}
	port := cmp.Or(at.Port(), map[string]string{"https": "443", "http": "80"}[at.Scheme])
	allow, err := outbound.ParseAllow(netJoin(at.Hostname(), port))
	if err != nil {
		return nil, err
	}
	// The client waits for the first byte of a package until the registry has it. Over HTTP/2
	// a registry that is dead is found by its silence.
	policy := outbound.Policy{Allow: allow, PlainHTTP: at.Scheme == "http", MaxBytes: maxArchive, Timeout: 24 * time.Hour, Alive: dead}
	if len(u.Authority) > 0 {
		policy.Roots = x509.NewCertPool()
		if !policy.Roots.AppendCertsFromPEM(u.Authority) {
			return nil, fault.New(fault.Invalid, "RegistryInvalid", errors.New("the authority of the registry of runs holds no PEM certificate"))
		}
	}
	client, err := outbound.New(policy).HTTP(outbound.Options{PlainHTTP: policy.PlainHTTP, UserAgent: "terrier-runner", Forwards: true})
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &upstream{Upstream: u, origin: at.Scheme + "://" + at.Host, client: client}, nil
}

func netJoin(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// Headers that cross the relay. Credentials do not.
var (
	asked    = []string{"Accept", "If-Range", "If-None-Match", "Range", "User-Agent", "X-Terraform-Version", "X-Terraform-Protocol-Version"}
	answered = []string{"Accept-Ranges", "Cache-Control", "Content-Range", "Content-Type", "Content-Disposition", "Etag", "Last-Modified", "Retry-After", "Warning"}
)

// forward asks the registry, as the run if the request has the secret of the relay.
func (r *Relay) forward(w http.ResponseWriter, q *http.Request, at string, ours bool) {
	ctx, cancel := context.WithCancelCause(q.Context())
	defer cancel(nil)
	resp, err := r.upstream.ask(ctx, q, at, ours)
	if err != nil {
		if q.Context().Err() == nil {
			r.note(Problem{Message: shorten(err.Error()), Path: q.URL.Path})
		}
		refuse(w, http.StatusBadGateway, "the registry of the platform does not answer")
		return
	}
	defer resp.Body.Close()
	h := w.Header()
	for _, name := range answered {
		if v := resp.Header.Values(name); len(v) > 0 {
			h[name] = v
		}
	}
	if to := resp.Header.Get("X-Terraform-Get"); to != "" {
		h.Set("X-Terraform-Get", r.upstream.here(to))
	}
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode != http.StatusNotModified && resp.StatusCode < http.StatusBadRequest:
		r.note(Problem{Status: http.StatusBadGateway, Message: fmt.Sprintf("it redirects with %d, and a run follows no redirect", resp.StatusCode), Path: q.URL.Path})
		refuse(w, http.StatusBadGateway, "the registry of the platform redirects, and a run follows no redirect")
	case resp.StatusCode >= http.StatusBadRequest:
		r.explain(w, q, resp)
	case q.Method == http.MethodGet && isJSON(resp.Header.Get("Content-Type")):
		r.document(w, q, resp)
	default:
		if resp.ContentLength >= 0 {
			h.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
		}
		w.WriteHeader(resp.StatusCode)
		stream(w, resp.Body, cancel)
	}
}

// ask sends one request to the registry.
func (u *upstream) ask(ctx context.Context, q *http.Request, at string, ours bool) (*http.Response, error) {
	target := strings.TrimSuffix(u.URL, "/") + at
	if q.URL.RawQuery != "" {
		target += "?" + q.URL.RawQuery
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, target, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range asked {
		if v := q.Header.Values(name); len(v) > 0 {
			req.Header[name] = v
		}
	}
	for name, value := range u.Header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept-Encoding", "identity") // a package is compared byte by byte
	// Where the way to the registry needs a credential of its own, as from a pod, every
	// request has it.
	if ours || len(u.Header) > 0 {
		token, err := u.Token()
		if err != nil {
			return nil, fmt.Errorf("reading the token of the run: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := u.client.Do(req)
	if err != nil {
		u.client.CloseIdleConnections() // one of them may be dead without knowing it
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // its text has the whole address, with a signature
		}
	}
	return resp, err
}

// explain hands on why the registry refuses, and remembers it.
func (r *Relay) explain(w http.ResponseWriter, q *http.Request, resp *http.Response) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReason))
	message := reason(data)
	if err != nil {
		message = "its answer is not whole"
	}
	r.note(Problem{Status: resp.StatusCode, Message: message, Path: q.URL.Path})
	refuse(w, resp.StatusCode, cmp.Or(message, http.StatusText(resp.StatusCode)))
}

// reason reads what an answer says about a failure.
func reason(data []byte) string {
	var said struct {
		Errors []string `json:"errors"`
		Error  string   `json:"error"`
	}
	if json.Unmarshal(data, &said) != nil {
		return ""
	}
	return shorten(cmp.Or(strings.Join(said.Errors, "; "), said.Error))
}

func shorten(text string) string { return fault.Shorten(text, maxMessage) }

// note remembers a failure, or a refusal. A failure after a refusal does not replace it:
// then the run would take from elsewhere what the registry refused. What says something
// about the request, as that there is no such thing, is an answer.
func (r *Relay) note(p Problem) {
	if !p.Away() && p.Status < http.StatusInternalServerError && p.Status != http.StatusUnauthorized && p.Status != http.StatusForbidden {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == nil || r.problem.Away() || !p.Away() {
		r.problem = &p
	}
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// document hands on a document of a protocol. The addresses in it lead through the relay.
func (r *Relay) document(w http.ResponseWriter, q *http.Request, resp *http.Response) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("the document has more than %d bytes", maxDocument)
	}
	if err != nil {
		if q.Context().Err() == nil {
			r.note(Problem{Message: shorten(err.Error()), Path: q.URL.Path})
		}
		refuse(w, http.StatusBadGateway, "the answer of the registry of the platform is not whole")
		return
	}
	data = bytes.ReplaceAll(data, []byte(`"`+r.upstream.base()+`/`), []byte(`"/`))
	r.learn(q.URL.Path, data)
	w.Header().Del("Etag") // of other bytes
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(data) // a client that is gone asks again
}

// base is how the addresses of the registry begin.
func (u *upstream) base() string { return strings.TrimSuffix(u.URL, "/") }

// here makes an address of the registry one of the relay.
func (u *upstream) here(address string) string {
	if rest, ok := strings.CutPrefix(address, u.base()+"/"); ok {
		return "/" + rest
	}
	return address
}

// learn remembers the hashes that a document of the mirror has: of one version of a
// provider, for all platforms.
func (r *Relay) learn(at string, data []byte) {
	rest, ok := strings.CutPrefix(at, "/v1/mirror/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 || parts[3] == "index.json" {
		return
	}
	version, ok := strings.CutSuffix(parts[3], ".json")
	if !ok {
		return
	}
	var said struct {
		Archives map[string]struct {
			Hashes []string `json:"hashes"`
		} `json:"archives"`
	}
	if json.Unmarshal(data, &said) != nil {
		return
	}
	var all []string
	for _, platform := range slices.Sorted(maps.Keys(said.Archives)) {
		all = append(all, said.Archives[platform].Hashes...)
	}
	slices.Sort(all)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hashes[Package{strings.Join(parts[:3], "/"), version}] = slices.Compact(all)
}

// stream hands bytes on as they come. A side that makes no progress for a while ends it.
func stream(w http.ResponseWriter, from io.Reader, cancel context.CancelCauseFunc) {
	control := http.NewResponseController(w)
	idle := time.AfterFunc(stalled, func() { cancel(errors.New("the registry sends no more")) })
	defer idle.Stop()
	buf := make([]byte, piece)
	for {
		n, err := from.Read(buf)
		idle.Stop()
		if n > 0 {
			if control.SetWriteDeadline(time.Now().Add(stalled)) != nil {
				return
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
		}
		idle.Reset(stalled)
	}
}

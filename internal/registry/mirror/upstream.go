package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/registry/signature"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Reasons of failures of an upstream. They are labels of metrics.
const (
	ReasonUnreachable = "UpstreamUnreachable" // no connection, no answer in time, or one cut off
	ReasonFailed      = "UpstreamFailed"      // a status that says that the upstream is broken
	ReasonLimited     = "UpstreamLimited"     // too many requests
	ReasonToken       = "UpstreamTokenDenied" // the upstream does not accept the token
	ReasonUnreadable  = "UpstreamUnreadable"  // the answer is not what the protocol says
	ReasonMissing     = "ProviderMissing"     // the upstream does not have it
	ReasonOffline     = "UpstreamOffline"     // the settings say that it cannot be reached
)

// OfUpstream reports whether an error says that an upstream is wrong, in a way in which
// waiting does not help.
func OfUpstream(err error) bool {
	switch fault.Reason(err, "") {
	case ReasonToken, ReasonUnreadable, ReasonSignature, ReasonChecksum, ReasonChanged:
		return fault.Of(err) == fault.Broken
	default:
		return false
	}
}

// Limits of what an upstream answers.
const (
	mostDocument  = 16 << 20
	mostSignature = 64 << 10
	mostPause     = 5 * time.Minute // after too many requests
	servicesFor   = 10 * time.Minute
)

// upstream is one registry, asked as an engine asks it.
type upstream struct {
	host     string
	settings Upstream
	base     *url.URL
	client   *outbound.Client
	services cache.Map[string, *url.URL]  // providers.v1 of the host
	limited  cache.Map[string, time.Time] // until when a server wants no requests, by its host and port
	now      func() time.Time
	health   health
}

// newUpstream prepares the client of a registry; policy is that of the operator for all
// that goes out.
func newUpstream(host string, s Upstream, policy outbound.Policy, mostArchive int64, now func() time.Time) (*upstream, error) {
	s.Timeout = cmp.Or(s.Timeout, Duration(10*time.Second))
	s.DownloadTimeout = cmp.Or(s.DownloadTimeout, Duration(10*time.Minute))
	s.IdleTimeout = cmp.Or(s.IdleTimeout, Duration(30*time.Second))
	base, err := s.base(host)
	if err != nil {
		return nil, err
	}
	policy.PlainHTTP = false
	policy.MaxBytes = mostArchive
	policy.Timeout = time.Duration(s.DownloadTimeout)
	policy.Dial = time.Duration(s.Timeout)
	if policy.Roots, err = s.roots(policy.Roots); err != nil {
		return nil, err
	}
	if s.Proxy != "" {
		if policy.ProxyURL, err = url.Parse(s.Proxy); err != nil {
			return nil, errors.New("proxy: it is no URL") // which may hold a password
		}
	}
	return &upstream{
		host: host, settings: s, base: base, client: outbound.New(policy),
		services: cache.Map[string, *url.URL]{TTL: servicesFor, Now: now},
		limited:  cache.Map[string, time.Time]{Size: 1000, Now: now}, now: now,
	}, nil
}

// service is the address of the provider registry, by discovery.
func (u *upstream) service(ctx context.Context) (*url.URL, error) {
	return u.services.Load(ctx, "providers.v1", func(ctx context.Context) (*url.URL, error) {
		resp, done, err := u.get(ctx, u.base.JoinPath(".well-known/terraform.json"), true, mostDocument, "discovery")
		if err != nil {
			if fault.Of(err) == fault.Missing {
				err = u.unreadable("its discovery document is not there, so it is no registry: check the host, or set url")
			}
			return nil, err
		}
		defer done()
		// Servers add parameters, as a character set.
		if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return nil, u.unreadable("its discovery document has the type %.80q, and application/json is expected", resp.Header.Get("Content-Type"))
		}
		var found map[string]any
		if err := u.decode(resp.Body, &found, "discovery"); err != nil {
			return nil, err
		}
		text, ok := found["providers.v1"].(string)
		at, err := url.Parse(text)
		if !ok || err != nil {
			return nil, u.unreadable("its discovery document names no providers.v1: it serves no providers")
		}
		at = resp.Request.URL.ResolveReference(at)
		if !strings.HasSuffix(at.Path, "/") {
			at.Path += "/"
		}
		return at, nil
	})
}

// versions are the versions of a provider, with their platforms.
func (u *upstream) versions(ctx context.Context, p address.Provider) (map[address.Version][]string, error) {
	var found struct {
		Versions []struct {
			Version   string `json:"version"`
			Platforms []struct {
				OS   string `json:"os"`
				Arch string `json:"arch"`
			} `json:"platforms"`
		} `json:"versions"`
	}
	if err := u.document(ctx, "the versions of "+p.String(), &found, p.Namespace, p.Type, "versions"); err != nil {
		return nil, err
	}
	all := make(map[address.Version][]string, len(found.Versions))
	for _, f := range found.Versions {
		v, err := address.ParseVersion(f.Version)
		if err != nil {
			continue // clients leave it out as well
		}
		platforms := []string{}
		for _, given := range f.Platforms {
			if platform, err := address.NewPlatform(given.OS, given.Arch); err == nil {
				platforms = append(platforms, platform.String())
			}
		}
		slices.Sort(platforms) // registries list them in any order
		all[v] = platforms
	}
	return all, nil
}

// download is what a registry says about the archive of one platform.
type download struct {
	OS           string `json:"os"`
	Arch         string `json:"arch"`
	Filename     string `json:"filename"`
	DownloadURL  string `json:"download_url"`
	SHA256       string `json:"shasum"`
	SumsURL      string `json:"shasums_url"`
	SignatureURL string `json:"shasums_signature_url"`
	Signing      struct {
		Keys []signature.Key `json:"gpg_public_keys"`
	} `json:"signing_keys"`

	archive, sums, signature *url.URL
}

func (u *upstream) download(ctx context.Context, p address.Provider, v address.Version, platform address.Platform) (*download, error) {
	what := fmt.Sprintf("%s %s for %s", p, v, platform)
	var d download
	if err := u.document(ctx, what, &d, p.Namespace, p.Type, string(v), "download", platform.OS, platform.Arch); err != nil {
		return nil, err
	}
	d.SHA256 = strings.ToLower(d.SHA256)
	switch {
	case d.OS != platform.OS || d.Arch != platform.Arch:
		return nil, u.unreadable("asked for %s, it names the platform %.80q", what, d.OS+"_"+d.Arch)
	case len(d.SHA256) != 64:
		return nil, u.unreadable("the checksum of %s is %.80q, which is no SHA-256", what, d.SHA256)
	case d.Filename == "" || strings.ContainsAny(d.Filename, "/\\ \n"):
		return nil, u.unreadable("the name of the archive of %s is %.80q", what, d.Filename)
	}
	base, err := u.service(ctx)
	if err != nil {
		return nil, err
	}
	base = base.JoinPath(p.Namespace, p.Type, string(v), "download", platform.OS, platform.Arch)
	for name, link := range map[string]struct {
		text string
		to   **url.URL
	}{"download_url": {d.DownloadURL, &d.archive}, "shasums_url": {d.SumsURL, &d.sums}, "shasums_signature_url": {d.SignatureURL, &d.signature}} {
		at, err := url.Parse(link.text)
		if err != nil || link.text == "" {
			return nil, u.unreadable("%s of %s is no URL", name, what) // it may be signed, so it is not shown
		}
		*link.to = base.ResolveReference(at)
	}
	return &d, nil
}

// document asks the registry for one of its documents.
func (u *upstream) document(ctx context.Context, what string, into any, parts ...string) error {
	base, err := u.service(ctx)
	if err != nil {
		return err
	}
	resp, done, err := u.get(ctx, base.JoinPath(parts...), true, mostDocument, what)
	if err != nil {
		return err
	}
	defer done()
	return u.decode(resp.Body, into, what)
}

func (u *upstream) decode(body io.Reader, into any, what string) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return u.failure(what, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return u.unreadable("its answer to the request for %s is no JSON of the registry protocol: %v", what, err)
	}
	return nil
}

// file reads a small file of a release. Its address works by itself: no token is sent.
func (u *upstream) file(ctx context.Context, at *url.URL, most int64, what string) ([]byte, error) {
	resp, done, err := u.get(ctx, at, false, most, what)
	if err != nil {
		return nil, err
	}
	defer done()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, u.failure(what, err)
	}
	return text, nil
}

// get sends one request for a document within the time for it, and checks the status.
func (u *upstream) get(ctx context.Context, at *url.URL, trusted bool, most int64, what string) (*http.Response, func(), error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(u.settings.Timeout), fmt.Errorf("no answer within %v", time.Duration(u.settings.Timeout)))
	resp, err := u.send(ctx, at, trusted, most, what)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return resp, func() { _ = resp.Body.Close(); cancel() }, nil
}

// fetch copies an archive to w, if there is room for it. A server that is silent for too
// long fails.
func (u *upstream) fetch(ctx context.Context, at *url.URL, w io.Writer, what string, disk *room.Room) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(u.settings.DownloadTimeout), fmt.Errorf("it took longer than %v", time.Duration(u.settings.DownloadTimeout)))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	idle := time.Duration(u.settings.IdleTimeout)
	silent := time.AfterFunc(idle, func() { stop(fmt.Errorf("not a byte within %v", idle)) })
	defer silent.Stop()
	resp, err := u.send(ctx, at, false, 0, what)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	claim, err := disk.Claim(resp.ContentLength)
	if err != nil {
		return 0, err
	}
	defer claim.Close()
	n, err := io.Copy(claim.Writer(w), &watched{resp.Body, func() { silent.Reset(idle) }})
	if fault.Reason(err, "") == room.ReasonFull {
		return n, err
	}
	if err != nil {
		return n, u.failure(what, errors.Join(context.Cause(ctx), err))
	}
	return n, nil
}

// watched says when something was read.
type watched struct {
	io.Reader
	read func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.read()
	}
	return n, err
}

func (u *upstream) send(ctx context.Context, at *url.URL, trusted bool, most int64, what string) (*http.Response, error) {
	if until, ok := u.limited.Get(at.Host); ok {
		return nil, u.wait(at.Host, what, until)
	}
	o := outbound.Options{MaxBytes: most}
	if trusted && u.settings.TokenFile != "" {
		text, err := os.ReadFile(u.settings.TokenFile)
		if err != nil {
			return nil, fault.New(fault.Broken, ReasonToken, fmt.Errorf("reading the token for %s: %w", u.host, err))
		}
		// Discovery may lead elsewhere; the token does not go there.
		o.Credentials = outbound.Credentials{Origin: u.base, Bearer: secret.New(strings.TrimSpace(string(text)))}
	}
	client, err := u.client.HTTP(o)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, u.unreadable("the address of %s is no URL", what)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, u.failure(what, errors.Join(context.Cause(ctx), err))
	}
	if err := u.status(resp, at, trusted, what); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// status is nil for a useful answer to a request for an address.
func (u *upstream) status(resp *http.Response, at *url.URL, trusted bool, what string) error {
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusNotFound, code == http.StatusGone:
		return fault.New(fault.Missing, ReasonMissing, fmt.Errorf("%s does not have %s", u.host, what))
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		hint := "set tokenFile of this upstream in the settings of the mirror"
		if u.settings.TokenFile != "" {
			hint = "renew the token in " + u.settings.TokenFile
		}
		return fault.New(fault.Broken, ReasonToken, fmt.Errorf("%s denies %s to the mirror with status %d: %s", u.host, what, code, hint))
	case code == http.StatusTooManyRequests:
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || after <= 0 {
			after = 30
		}
		server := at.Host
		if !trusted && u.answersFor(server) {
			server = resp.Request.URL.Host // the registry answered; the server that it led to did not
		}
		until := u.now().Add(min(time.Duration(after)*time.Second, mostPause))
		u.limited.PutUntil(server, until, until)
		return u.wait(server, what, until)
	default:
		return fault.New(fault.Later, ReasonFailed, fmt.Errorf("%s answered the request for %s with status %d", u.host, what, code))
	}
}

// answersFor reports whether a server, by host and port, is one of the registry itself, and
// not one of files alone.
func (u *upstream) answersFor(server string) bool {
	service, ok := u.services.Get("providers.v1")
	return server == u.base.Host || ok && server == service.Host
}

// wait is the error of a request to a server that wants no requests for a time.
func (u *upstream) wait(server, what string, until time.Time) error {
	name := u.host
	if !u.answersFor(server) {
		name = fmt.Sprintf("%.250s, which has files of %s,", server, u.host)
	}
	after := max(until.Sub(u.now()).Round(time.Second), time.Second)
	return fault.Wait(after, ReasonLimited, fmt.Errorf("%s limits the requests of the mirror, and gave no answer for %s: try again in %.0f s", name, what, after.Seconds()))
}

// failure is the error of a request without an answer, or with half of one. It does not
// show the address, which may be signed.
func (u *upstream) failure(what string, err error) error {
	var texts []string
	for line := range strings.Lines(bare(err).Error()) {
		texts = append(texts, strings.TrimSpace(line))
	}
	return fault.New(fault.Later, ReasonUnreachable, fmt.Errorf("asking %s for %s: %s", u.host, what, strings.Join(texts, ": ")))
}

// bare removes the address from the error of a request.
func bare(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, bare(e))
		}
		return errors.Join(all...)
	}
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}

func (u *upstream) unreadable(format string, args ...any) error {
	return fault.New(fault.Broken, ReasonUnreadable, fmt.Errorf("%s is not understood: "+format, append([]any{u.host}, args...)...))
}

// Package tokens keeps the tokens of a run in files for as long as the run goes on: it asks
// the controller for them with the grant of the run, renews them in time, and tells what they
// are so that nothing shows them.
//
// It decides nothing about who the run is, and writes nowhere but in the directory that its
// caller gives it. Start reading at Open.
package tokens

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Upstream is the controller as a supervisor reaches it.
type Upstream struct {
	URL       string                 // https://HOST:PORT, with a path below which PathTokens is
	Authority []byte                 // certificates in PEM that it is signed with; the system's if there are none
	Bearer    func() (string, error) // the credential of each request; nil for none beside the grant
	Header    map[string]string      // of each request
	Grant     secret.Text
}

// Options are what Tokens need.
type Options struct {
	Upstream Upstream
	Request  identity.Request
	Phase    identity.Phase
	Session  string // see identity.Session

	Inside string                   // the directory, as programs of the run see it
	Open   func() (*os.Root, error) // the directory, as this process sees it; programs of the run may have changed it
	Own    func(*os.File) error     // gives a file to the user of the programs

	Hide  func(values ...string)   // called with each new token before it is in a file
	Begin func(prefixes ...string) // called with how such tokens begin: what follows is hidden as well
	Told  func([]identity.Issued)  // called with the new tokens; their text is empty
	Say   func(f string, a ...any) // to the log of the run
	Now   func() time.Time         // the clock of this machine, with a monotonic reading; that of the controller may say something else
}

// Tokens are the tokens of one run.
type Tokens struct {
	o      Options
	client *http.Client
	target string

	mu     sync.Mutex
	issued []identity.Issued
	until  time.Time // the first of them expires, by the clock of this machine

	stop func()
	done sync.WaitGroup
}

// Bounds of what is asked.
const (
	maxAnswer  = 1 << 20
	askTime    = 30 * time.Second // of one request
	firstTries = 5                // of the first one; then the run fails, and is tried again later
	firstPause = time.Second
	mostPause  = time.Minute
	leastLeft  = 2 * time.Minute // that a token is valid when a program starts
)

// ReasonUnavailable is the reason of the fault of a run that got no tokens.
const ReasonUnavailable = "IdentityUnavailable"

// Open gets the first tokens and writes the files. Until Close they are renewed.
func Open(ctx context.Context, o Options) (*Tokens, error) {
	client, target, err := o.Upstream.client()
	if err != nil {
		return nil, err
	}
	t := &Tokens{o: o, client: client, target: target}
	if err := t.writeOthers(); err != nil {
		return nil, err
	}
	if err := t.first(ctx); err != nil {
		client.CloseIdleConnections()
		return nil, err
	}
	// The end of ctx asks the engine to stop, which needs its tokens until then.
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	t.done.Go(func() { t.keep(keep) })
	return t, nil
}

// Close ends the renewal. The files are the caller's to remove.
func (t *Tokens) Close() {
	if t == nil {
		return
	}
	t.stop()
	t.done.Wait()
	t.client.CloseIdleConnections()
}

// Environ is what the environment of a program has that starts now; empty without tokens.
func (t *Tokens) Environ() map[string]string {
	if t == nil {
		return nil
	}
	env := t.o.Request.Environ(t.o.Phase, t.o.Inside, t.o.Session)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(env, t.o.Request.Values(t.issued))
	return env
}

// Fresh makes sure that a program which starts now has time to use the tokens. A failure is
// no reason not to start it: the tokens may do.
func (t *Tokens) Fresh(ctx context.Context) {
	if t == nil {
		return
	}
	t.mu.Lock()
	left := t.until.Sub(t.o.Now())
	t.mu.Unlock()
	if left < leastLeft {
		if err := t.renew(ctx); err != nil {
			t.o.Say("The tokens of the run are not renewed: %v.", err)
		}
	}
}

// first gets the first tokens.
func (t *Tokens) first(ctx context.Context) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := t.renew(ctx)
		if err == nil {
			return nil
		}
		if _, refused := errors.AsType[*refusal](err); refused || try == firstTries {
			return fault.New(fault.Later, ReasonUnavailable, fmt.Errorf("the run got no identity: %w", err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 2
	}
}

// keep renews the tokens when half of their time is over.
func (t *Tokens) keep(ctx context.Context) {
	wait, failed := t.half(), false
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		err := t.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failed:
			t.o.Say("The tokens of the run are renewed again.")
		case err != nil && !failed:
			t.o.Say("The tokens of the run are not renewed: %v. Terrier tries again.", err)
		}
		if failed = err != nil; failed {
			wait = min(max(wait/4, firstPause), mostPause)
		} else {
			wait = t.half()
		}
	}
}

// half is the time until half of the time of the tokens is over.
func (t *Tokens) half() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.until.Sub(t.o.Now())/2, firstPause)
}

// renew gets new tokens and replaces those in the files.
func (t *Tokens) renew(ctx context.Context) error {
	asked := t.o.Now()
	issued, err := t.ask(ctx)
	if err != nil {
		return err
	}
	life, err := t.fits(issued)
	if err != nil {
		return err
	}
	for _, i := range issued {
		if t.has(i.Token) {
			continue
		}
		// Tokens of an earlier run of the same key begin in the same way. A module may have kept
		// one in its plan or its state.
		t.o.Begin(i.Token[:strings.Index(i.Token, ".")+1])
		t.o.Hide(hidden(i.Token)...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.write(issued); err != nil {
		return err
	}
	t.issued, t.until = issued, asked.Add(life)
	told := make([]identity.Issued, 0, len(issued))
	for _, i := range issued {
		i.Token = ""
		told = append(told, i)
	}
	t.o.Told(told)
	return nil
}

// hidden are the texts of a token that open something: all of it, and the signature, without
// which the rest proves nothing.
func hidden(token string) []string {
	return []string{token, token[strings.LastIndex(token, ".")+1:]}
}

// has reports whether the run has a token already.
func (t *Tokens) has(token string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.issued, func(i identity.Issued) bool { return i.Token == token })
}

// fits returns how long the first of the tokens lasts, and an error for tokens that are not
// those that the run asked for. Both times are of the clock of the controller.
func (t *Tokens) fits(issued []identity.Issued) (life time.Duration, err error) {
	uses := t.o.Request.Uses(t.o.Phase)
	if len(issued) != len(uses) || len(uses) == 0 {
		return 0, fmt.Errorf("the controller gave %d tokens, and the run has %d uses", len(issued), len(uses))
	}
	for i, u := range uses {
		g := issued[i]
		if g.Name != u.Name || g.Audience != u.Audience || g.Token == "" || strings.ContainsAny(g.Token, "\n\r ") {
			return 0, fmt.Errorf("the controller gave no token for %s", u.Audience)
		}
		if left := g.Expires.Sub(g.Issued); i == 0 || left < life {
			life = left
		}
	}
	if life <= 0 {
		return 0, errors.New("the controller gave tokens that have expired")
	}
	return life, nil
}

// write replaces the files of tokens, each in one step: a provider may be reading it.
func (t *Tokens) write(issued []identity.Issued) error {
	dir, err := t.o.Open()
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, i := range issued {
		if err := t.replace(dir, identity.Use{Name: i.Name}.TokenFile(), []byte(i.Token)); err != nil {
			return err
		}
	}
	return nil
}

// writeOthers writes the files beside the tokens.
func (t *Tokens) writeOthers() error {
	files, err := t.o.Request.Files(t.o.Phase, t.o.Inside)
	if err != nil {
		return err
	}
	dir, err := t.o.Open()
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, f := range files {
		if err := t.replace(dir, f.Name, f.Content); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file that only the user of the programs may read. Those programs may have
// made anything of the directory, and a link in it leads nowhere else.
func (t *Tokens) replace(dir *os.Root, name string, content []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s of the identity: %w", name, err)
		}
	}()
	fresh := ".new-" + name
	if err := dir.RemoveAll(fresh); err != nil {
		return err
	}
	f, err := dir.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, t.o.Own(f), f.Close()); err != nil {
		return err
	}
	if info, err := dir.Lstat(name); err == nil && info.IsDir() { // a program of the run made it
		if err := dir.RemoveAll(name); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return dir.Rename(fresh, name)
}

// refusal is an answer which says that this run gets no tokens.
type refusal struct{ why string }

func (e *refusal) Error() string { return e.why }

// ask asks the controller for tokens.
func (t *Tokens) ask(ctx context.Context) ([]identity.Issued, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, t.target, http.NoBody)
	if err != nil {
		return nil, err
	}
	u := t.o.Upstream
	for name, value := range u.Header {
		q.Header.Set(name, value)
	}
	if u.Bearer != nil {
		token, err := u.Bearer()
		if err != nil {
			return nil, fmt.Errorf("reading the token of the place: %w", err)
		}
		q.Header.Set("Authorization", "Bearer "+token)
	}
	q.Header.Set(identity.HeaderGrant, u.Grant.Reveal())
	resp, err := t.client.Do(q)
	if err != nil {
		return nil, fmt.Errorf("the controller does not answer: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the controller: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		why := fmt.Sprintf("the controller answered %d: %.300s", resp.StatusCode, bytes.TrimSpace(data))
		if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusGone || resp.StatusCode == http.StatusNotFound {
			return nil, &refusal{why}
		}
		return nil, errors.New(why)
	}
	var a identity.Answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, errors.New("the answer of the controller is no JSON") // and may hold a token
	}
	return a.Tokens, nil
}

// client is a client of the controller and of nothing else, and where it asks.
func (u Upstream) client() (*http.Client, string, error) {
	at, err := url.Parse(u.URL)
	if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, "", fault.New(fault.Invalid, ReasonUnavailable, fmt.Errorf("the controller is at %q, want https://HOST:PORT", u.URL))
	}
	addr, err := netip.ParseAddr(at.Hostname())
	if at.Scheme == "http" && (err != nil || !addr.IsLoopback()) {
		return nil, "", fault.New(fault.Invalid, ReasonUnavailable, fmt.Errorf("the controller is at %q, want https: no token may be sent unencrypted", u.URL))
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[at.Scheme]
	}
	allow, err := outbound.ParseAllow(net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return nil, "", err
	}
	policy := outbound.Policy{Allow: allow, PlainHTTP: at.Scheme == "http", MaxBytes: maxAnswer, Timeout: askTime}
	if len(u.Authority) > 0 {
		policy.Roots = x509.NewCertPool()
		if !policy.Roots.AppendCertsFromPEM(u.Authority) {
			return nil, "", fault.New(fault.Invalid, ReasonUnavailable, errors.New("the authority of the controller holds no PEM certificate"))
		}
	}
	client, err := outbound.New(policy).HTTP(outbound.Options{PlainHTTP: policy.PlainHTTP, UserAgent: "terrier-runner"})
	if err != nil {
		return nil, "", err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, strings.TrimSuffix(u.URL, "/") + identity.PathTokens, nil
}

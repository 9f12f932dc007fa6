package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/client"
)

// visitor is the browser of a user: one connection over TLS, which
// stays open, and the cookie of a session.
type visitor struct {
	base string // address of the server
	http *http.Client
}

// visit is what it took to get an answer, from when it was asked for.
type visit struct {
	first, whole time.Duration // to the first and to the last byte
	bytes        int64         // unpacked
}

// browser is a visitor that is not signed in.
func (h *house) browser(ctx context.Context) (*visitor, error) {
	var server corev1.ConfigMap
	name := types.NamespacedName{Namespace: access.ServerNamespace, Name: access.ServerConfigMap}
	if err := h.client.Get(ctx, name, &server); err != nil {
		return nil, fmt.Errorf("finding the server: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(server.Data[access.ServerCAKey])) {
		return nil, errors.New("the server tells no certificate")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	return &visitor{base: server.Data[access.ServerURLKey], http: &http.Client{
		Jar:           jar,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// signInOwner signs in whom the kubeconfig is for, as terrier ui does.
func (h *house) signInOwner(ctx context.Context) (*visitor, error) {
	v, err := h.browser(ctx)
	if err != nil {
		return nil, err
	}
	_, link, err := client.SignIn(ctx, client.Connection{Kubeconfig: h.kubeconfig, Now: time.Now})
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(link)
	if err != nil {
		return nil, err
	}
	return v, v.signIn(ctx, url.Values{"code": {address.Query().Get("code")}})
}

// signedIn signs in one of the people, with a token.
func (h *house) signedIn(ctx context.Context, name string) (*visitor, error) {
	v, err := h.browser(ctx)
	if err != nil {
		return nil, err
	}
	token := &authnv1.TokenRequest{}
	if err := h.client.SubResource("token").Create(ctx, accountOf(name), token); err != nil {
		return nil, fmt.Errorf("asking for a token of %s: %w", name, err)
	}
	return v, v.signIn(ctx, url.Values{"token": {token.Status.Token}})
}

// allSignedIn signs in n of the people.
func (h *house) allSignedIn(ctx context.Context, n int, name func(int) string) (all []*visitor, err error) {
	for i := range n {
		v, err := h.signedIn(ctx, name(i))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (v *visitor) signIn(ctx context.Context, form url.Values) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.base+"/sign-in", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := v.http.Do(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return errors.Join(err, answer.Body.Close())
	}
	if answer.StatusCode != http.StatusSeeOther || len(answer.Cookies()) == 0 {
		return errors.Join(fmt.Errorf("signing in: %s", answer.Status), answer.Body.Close())
	}
	return answer.Body.Close()
}

// open asks for something as a page of ours, or the person before it, does.
// Anything but 200 is an error.
func (v *visitor) open(ctx context.Context, path, mode, accept string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Sec-Fetch-Mode", mode)
	answer, err := v.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("%s: %s: %s", path, answer.Status, said), err, answer.Body.Close())
	}
	return answer, nil
}

// get opens a page and reads all of it.
func (v *visitor) get(ctx context.Context, path string) (got visit, err error) {
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { got.first = time.Since(began) }})
	answer, err := v.open(ctx, path, "navigate", "text/html,application/json;q=0.9")
	if err != nil {
		return got, err
	}
	got.bytes, err = io.Copy(io.Discard, answer.Body)
	got.whole = time.Since(began)
	return got, errors.Join(err, answer.Body.Close())
}

// follow opens a stream of events and gives each of them to each, with the time
// at which it came, until that says no or the stream ends. opened is called
// when the server has let the visitor in.
func (v *visitor) follow(ctx context.Context, path string, opened func(), each func(name, data string, at time.Time) (more bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := v.open(ctx, path, "cors", "text/event-stream")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	opened()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		line := lines.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && !each(name, data, time.Now()) {
			return nil
		}
		if line == "" {
			name = ""
		}
	}
	return lines.Err()
}

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// SignInLink lets one browser in, once, as whoever asked for it.
type SignInLink struct {
	Path  string    `json:"path"` // below the address of the server
	Name  string    `json:"name"` // who somebody is there
	Until time.Time `json:"until"`
}

// SignIn asks the server for a link by which a browser is known as whoever asks,
// and returns it with the whole address to open.
func SignIn(ctx context.Context, c Connection) (SignInLink, string, error) {
	config, _, err := c.config()
	if err != nil {
		return SignInLink{}, "", err
	}
	kube, err := NewClient(config)
	if err != nil {
		return SignInLink{}, "", fault.New(fault.Invalid, ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s, err := findServer(ctx, kube, c.Server)
	if err != nil {
		return SignInLink{}, "", err
	}
	client, err := s.client(config)
	if fault.Reason(err, "") == ReasonNoToken {
		err = fault.New(fault.Denied, ReasonCertificateOnly, fmt.Errorf("the kubeconfig holds no token, and a browser cannot show %s a client certificate", s.base.Host))
	}
	if err != nil {
		return SignInLink{}, "", err
	}
	r := NewRemote(s.base, client)
	link, err := r.signInLink(ctx)
	if err != nil {
		return SignInLink{}, "", err
	}
	to, err := url.Parse(link.Path)
	if err != nil || to.Host != "" || to.Scheme != "" {
		return SignInLink{}, "", fmt.Errorf("the server at %s answers with %.200q, which is no path of its own", s.base.Host, link.Path)
	}
	return link, s.base.ResolveReference(to).String(), nil
}

// signInLink asks the server for a link.
func (r *Remote) signInLink(ctx context.Context) (SignInLink, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base.JoinPath("api", "v1", "sign-in-links").String(), nil)
	if err != nil {
		return SignInLink{}, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return SignInLink{}, r.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusCreated {
		return SignInLink{}, errors.Join(r.refusal(resp), resp.Body.Close())
	}
	var link SignInLink
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&link)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return SignInLink{}, fmt.Errorf("reading the answer of %s: %w", r.base.Host, err)
	}
	return link, nil
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
)

// SignIn asks the server for a link by which a browser is known as whoever asks,
// and returns it with the whole address to open.
func SignIn(ctx context.Context, c Connection) (command.SignInLink, string, error) {
	config, _, err := c.config()
	if err != nil {
		return command.SignInLink{}, "", err
	}
	kube, err := access.NewClient(config)
	if err != nil {
		return command.SignInLink{}, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s, err := findServer(ctx, kube, c.Server)
	if err != nil {
		return command.SignInLink{}, "", err
	}
	client, err := s.client(config)
	if fault.Reason(err, "") == access.ReasonNoToken {
		err = fault.New(fault.Denied, access.ReasonCertificateOnly, fmt.Errorf("the kubeconfig holds no token, and a browser cannot show %s a client certificate", s.base.Host))
	}
	if err != nil {
		return command.SignInLink{}, "", err
	}
	r := NewRemote(s.base, client)
	link, err := r.signInLink(ctx)
	if err != nil {
		return command.SignInLink{}, "", err
	}
	to, err := url.Parse(link.Path)
	if err != nil || to.Host != "" || to.Scheme != "" {
		return command.SignInLink{}, "", fmt.Errorf("the server at %s answers with %.200q, which is no path of its own", s.base.Host, link.Path)
	}
	return link, s.base.ResolveReference(to).String(), nil
}

// signInLink asks the server for a link.
func (r *Remote) signInLink(ctx context.Context) (command.SignInLink, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base.JoinPath("api", "v1", "sign-in-links").String(), nil)
	if err != nil {
		return command.SignInLink{}, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return command.SignInLink{}, r.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusCreated {
		return command.SignInLink{}, errors.Join(r.refusal(resp), resp.Body.Close())
	}
	var link command.SignInLink
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&link)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return command.SignInLink{}, fmt.Errorf("reading the answer of %s: %w", r.base.Host, err)
	}
	return link, nil
}

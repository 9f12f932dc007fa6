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

// SignIn asks the server for a link that signs a browser in as the user, and
// returns it with the whole address to open.
func SignIn(ctx context.Context, c Connection) (command.SignInLink, string, error) {
	s, _, err := c.server(ctx)
	if fault.Reason(err, "") == access.ReasonNoToken {
		err = fault.New(fault.Denied, access.ReasonCertificateOnly, errors.New("the kubeconfig holds no token, and a browser cannot show the server a client certificate"))
	}
	if err != nil {
		return command.SignInLink{}, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	link, err := s.signInLink(ctx)
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
func (c *conn) signInLink(ctx context.Context) (command.SignInLink, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.at(nil, "sign-in-links"), nil)
	if err != nil {
		return command.SignInLink{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return command.SignInLink{}, c.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusCreated {
		return command.SignInLink{}, errors.Join(c.refusal(resp), resp.Body.Close())
	}
	var link command.SignInLink
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&link)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return command.SignInLink{}, fmt.Errorf("reading the answer of %s: %w", c.base.Host, err)
	}
	return link, nil
}

package client

import (
	"context"
	"errors"
	"fmt"
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
	var link command.SignInLink
	if err := s.send(ctx, requestTime, http.MethodPost, s.at(nil, "sign-in-links"), nil, &link); err != nil {
		return command.SignInLink{}, "", err
	}
	p, err := s.find()
	if err != nil {
		return command.SignInLink{}, "", err
	}
	to, err := url.Parse(link.Path)
	if err != nil || to.Host != "" || to.Scheme != "" {
		return command.SignInLink{}, "", fmt.Errorf("the server at %s answers with %.200q, which is no path of its own", p.base.Host, link.Path)
	}
	return link, p.base.ResolveReference(to).String(), nil
}

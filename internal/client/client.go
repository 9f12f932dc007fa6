// Package client asks the questions of package query, and gives the commands of
// package command, over the HTTP API of a server. It also finds the cluster and
// the server that the command line speaks to.
//
// Start reading at Client and Connect.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// Client asks and commands over the HTTP API of a server. Whoever makes its
// requests is who everything is done as.
type Client struct {
	Stacks  *Stacks
	Tenants *Tenants
}

// Dial returns a Client of the server at base, and speaks to nobody yet. The
// http.Client is as for NewRemote.
func Dial(base *url.URL, c *http.Client) *Client {
	r := NewRemote(base, c)
	return &Client{Stacks: &Stacks{r}, Tenants: &Tenants{r}}
}

// RemoteStacks are the stacks of a server, as it shows them to the caller.
type Stacks struct{ r *Remote }

// RemoteTenants are its registries, templates and tenants.
type Tenants struct{ r *Remote }

var (
	_ command.StackAPI  = (*Stacks)(nil)
	_ command.TenantAPI = (*Tenants)(nil)
)

// at is an address below the API.
func (r *Remote) at(params url.Values, parts ...string) string {
	all := append([]string{"api", "v1"}, parts...)
	for i := range all {
		all[i] = url.PathEscape(all[i])
	}
	u := r.base.JoinPath(all...)
	u.RawQuery = params.Encode()
	return u.String()
}

func object(key query.Key, kind string, more ...string) []string {
	return append([]string{"namespaces", key.Namespace, kind, key.Name}, more...)
}

// commandTime bounds a command that waits for nothing.
const commandTime = time.Minute

// post sends one command and reads its answer into out, unless that is nil.
func (r *Remote) post(ctx context.Context, within time.Duration, in, out any, parts ...string) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return r.send(ctx, within, body, out, r.at(nil, parts...))
}

// send is post of a body that is JSON already.
func (r *Remote) send(ctx context.Context, within time.Duration, body []byte, out any, address string) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		return r.unreachable(ctx, err)
	}
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent:
		err = r.refusal(resp)
	case out != nil:
		err = json.NewDecoder(io.LimitReader(resp.Body, query.DocumentBytes)).Decode(out)
	}
	return errors.Join(err, resp.Body.Close())
}

func flag(params url.Values, name string, on bool) {
	if on {
		params.Set(name, strconv.FormatBool(on))
	}
}

func text(params url.Values, name, value string) {
	if value != "" {
		params.Set(name, value)
	}
}

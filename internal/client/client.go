// Package client asks the questions of package query, and gives the commands of
// package command, over the HTTP API of a server. It also finds the cluster and
// the server that the command line speaks to.
//
// Start reading at Client and Connect.
package client

import (
	"net/http"
	"net/url"

	"github.com/terrier-iac/terrier/internal/command"
)

// Client asks and commands over the HTTP API of a server, as the user whose
// credentials its requests carry.
type Client struct {
	Stacks  *Stacks
	Tenants *Tenants
}

// Dial returns a Client of the server at base, and sends no request yet. The
// http.Client must add the credentials of the user, and may bound no request in
// time.
func Dial(base *url.URL, c *http.Client) *Client {
	own := newConn(peer{base: base, http: c})
	return &Client{Stacks: newStacks(own), Tenants: &Tenants{own}}
}

var (
	_ command.StackAPI  = (*Stacks)(nil)
	_ command.TenantAPI = (*Tenants)(nil)
)

package service

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

	"github.com/terrier-iac/terrier/internal/kube"
)

// Client asks and commands over the HTTP API of a server. Whoever makes its
// requests is who everything is done as.
type Client struct {
	Stacks  *RemoteStacks
	Tenants *RemoteTenants
}

// Dial returns a Client of the server at base, and speaks to nobody yet. The
// http.Client is as for NewRemote.
func Dial(base *url.URL, c *http.Client) *Client {
	r := NewRemote(base, c)
	return &Client{Stacks: &RemoteStacks{r}, Tenants: &RemoteTenants{r}}
}

// RemoteStacks are the stacks of a server, as it shows them to the caller.
type RemoteStacks struct{ r *Remote }

// RemoteTenants are its registries, templates and tenants.
type RemoteTenants struct{ r *Remote }

var (
	_ StackAPI  = (*RemoteStacks)(nil)
	_ TenantAPI = (*RemoteTenants)(nil)
)

// What commands send. Each is also what the server reads.
type (
	// SeenPlan is the plan that somebody saw when they decided about it, and what
	// they say to that.
	SeenPlan struct {
		Name    string `json:"name"`
		Digest  string `json:"digest,omitempty"`
		Comment string `json:"comment,omitempty"`
	}
	// SeenRepair is the plan of a repair that somebody saw.
	SeenRepair struct {
		Name   string `json:"name"`
		Digest string `json:"digest,omitempty"`
	}
	// NamedLock names a lock. Empty is the caller's own, where that is enough.
	NamedLock struct {
		ID string `json:"id,omitempty"`
	}
	// LockReason says why a state is to be locked.
	LockReason struct {
		Reason string `json:"reason,omitempty"`
	}
	// RollbackOrder asks for an older version of a state. With Preview it is only
	// said what that would do; without, Over and To are what was said then.
	RollbackOrder struct {
		Version string `json:"version"`
		Force   bool   `json:"force,omitempty"`
		Preview bool   `json:"preview,omitempty"`
		Over    string `json:"over,omitempty"`
		To      string `json:"to,omitempty"`
	}
	// AllowedToken stands for exactly the deletions that may pass.
	AllowedToken struct {
		Token string `json:"token"`
	}
	// UndoOrder asks for an older generation of a template: the last good one if To
	// is 0. With Preview it is only said what that would do; without, From is what
	// was said then.
	UndoOrder struct {
		To      int64 `json:"to,omitempty"`
		From    int64 `json:"from,omitempty"`
		Preview bool  `json:"preview,omitempty"`
	}
)

// What commands answer, where that is no type that reads have as well.
type (
	// Requested is a request that the controller answers later.
	Requested struct {
		Request string `json:"request"`
	}
	// Resumed is the generation of a template whose rollout goes on.
	Resumed struct {
		Generation int64 `json:"generation"`
	}
	// UndoView is what an Undoing would do.
	UndoView struct {
		From int64 `json:"from"`
		To   int64 `json:"to"`
		Same bool  `json:"same,omitempty"` // the two do not differ
	}
)

// at is an address below the API.
func (r *Remote) at(query url.Values, parts ...string) string {
	all := append([]string{"api", "v1"}, parts...)
	for i := range all {
		all[i] = url.PathEscape(all[i])
	}
	u := r.base.JoinPath(all...)
	u.RawQuery = query.Encode()
	return u.String()
}

func object(key Key, kind string, more ...string) []string {
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
		err = json.NewDecoder(io.LimitReader(resp.Body, documentBytes)).Decode(out)
	}
	return errors.Join(err, resp.Body.Close())
}

// ReasonStateConflict is of a state that is not what it was when somebody looked.
const ReasonStateConflict = kube.StateConflict

func flag(query url.Values, name string, on bool) {
	if on {
		query.Set(name, strconv.FormatBool(on))
	}
}

func text(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/peers"
)

// failing is a server that refuses requests for a reason before it answers one.
type failing struct {
	times  int
	reason string // empty: it is not reached
	asked  int
}

func (f *failing) RoundTrip(*http.Request) (*http.Response, error) {
	f.asked++
	answer := func(status int, v any) (*http.Response, error) {
		body, err := json.Marshal(v)
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body)))}, err
	}
	switch {
	case f.asked > f.times:
		return answer(http.StatusOK, struct{}{})
	case f.reason == "":
		return nil, errors.New("connection refused")
	default:
		return answer(http.StatusServiceUnavailable, command.Refusal{Error: "a controller has ended", Kind: fault.Later, Reason: f.reason})
	}
}

// A request that meets a controller which has just died is sent again, for a while, and the
// user reads why. One that may change something is sent again only if none has taken it.
func TestRequestsAreSentAgainWhileAControllerIsMissed(t *testing.T) {
	const noEnd = 1 << 30
	for name, tt := range map[string]struct {
		method string
		server failing
		asked  int
		fails  bool
		quiet  bool
	}{
		"a controller does not answer":   {http.MethodGet, failing{times: 15, reason: peers.ReasonUnreachable}, 16, false, false},
		"there is no leader":             {http.MethodGet, failing{times: 15, reason: access.ReasonNoLeader}, 16, false, false},
		"the stack moves":                {http.MethodGet, failing{times: 15, reason: access.ReasonMoving}, 16, false, false},
		"it does not end":                {http.MethodGet, failing{times: noEnd, reason: access.ReasonMoving}, 31, true, false},
		"the server is reached later":    {http.MethodGet, failing{times: 2}, 3, false, false},
		"the server is not reached":      {http.MethodGet, failing{times: noEnd}, 3, true, false},
		"another reason":                 {http.MethodGet, failing{times: noEnd, reason: "NotReady"}, 1, true, true},
		"a command, the stack moves":     {http.MethodPost, failing{times: 15, reason: access.ReasonMoving}, 16, false, false},
		"too many requests carry states": {http.MethodPost, failing{times: 15, reason: access.ReasonNoSeat}, 16, false, false},
		"a command that was not taken":   {http.MethodPost, failing{times: 15, reason: peers.ReasonMoved}, 16, false, false},
		"a command that may be taken":    {http.MethodPost, failing{times: noEnd, reason: peers.ReasonUnreachable}, 1, true, true},
		"a command that does not arrive": {http.MethodPost, failing{times: noEnd}, 1, true, true},
		"a command, there is no leader":  {http.MethodPost, failing{times: noEnd, reason: access.ReasonNoLeader}, 1, true, true},
		"a server that answers at once":  {http.MethodGet, failing{}, 1, false, true},
		"a command that is done at once": {http.MethodPost, failing{}, 1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				c := newConn(peer{base: &url.URL{Scheme: "https", Host: "terrier"}, http: &http.Client{Transport: &tt.server}})
				c.waiting = func(why string) { said = append(said, why) }
				err := c.send(t.Context(), 0, tt.method, c.at(nil, "stacks"), nil, nil)
				if tt.server.asked != tt.asked || (fault.Of(err) == fault.Later) != tt.fails {
					t.Errorf("asked %d times, and it ends %v; want %d times, and that it fails: %v", tt.server.asked, err, tt.asked, tt.fails)
				}
				if quiet := len(said) == 0; quiet != tt.quiet || len(said) > 1 {
					t.Errorf("the user reads %q", said)
				}
			})
		})
	}
}

// A client that tells no user does not ask again.
func TestRequestsOfProgramsAreSentOnce(t *testing.T) {
	server := failing{times: 1, reason: access.ReasonMoving}
	c := newConn(peer{base: &url.URL{Scheme: "https", Host: "terrier"}, http: &http.Client{Transport: &server}})
	if err := c.send(t.Context(), 0, http.MethodGet, c.at(nil, "stacks"), nil, nil); fault.Of(err) != fault.Later || server.asked != 1 {
		t.Errorf("asked %d times, and it ends %v", server.asked, err)
	}
}

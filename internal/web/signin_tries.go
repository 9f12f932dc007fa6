package web

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// tries bounds how often signing in may fail. A token cannot be guessed, but each
// try causes a request to the cluster.
type tries struct {
	now   func() time.Time
	limit limit
}

const (
	triesFrom = 20  // in a minute, from one address, which may be a proxy's
	triesAll  = 200 // together
)

func newTries(now func() time.Time) *tries {
	return &tries{now: now, limit: limit{each: triesFrom, all: triesAll}}
}

// begin takes a try, or returns an error if none is left for the sender of r. A try
// that succeeds, or that was not a guess, is given back; it is taken before, so that
// a thousand at once count as a thousand in turn.
//
// Only requests that cause work elsewhere are tries: a token, which the cluster
// checks, and the answer of an issuer to an errand of ours. Requests that any page can make
// a browser send, such as a link with an invalid code, are not: they
// would lock out users who share an address.
func (t *tries) begin(r *http.Request) (succeeded func(), err error) {
	back, wait := t.limit.take(addressOf(r), t.now())
	if wait > 0 {
		return nil, &httpError{http.StatusTooManyRequests, fault.Wait(wait, "TooManyTries", errors.New("too many failed attempts to sign in"))}
	}
	return back, nil
}

func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

package web

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// tries bounds how often signing in may fail. A token cannot
// be guessed, but each try causes a request to the cluster.
type tries struct {
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	all   int
	from  map[string]int
}

const (
	triesTime = time.Minute
	triesFrom = 20  // from one address, which may be a proxy's
	triesAll  = 200 // together
)

// begin takes a try, or returns an error if none is left for the sender of r. A try
// that succeeds, or that was not a guess, is given back; it is taken before, so that
// a thousand at once count as a thousand in turn.
//
// Only requests that cause work elsewhere are tries: a token, which the cluster
// checks, and the answer of an issuer to an errand of ours. Requests that any page can make
// a browser send, such as a link with an invalid code, are not: they
// would lock out users who share an address.
func (t *tries) begin(r *http.Request) (succeeded func(), err error) {
	from := addressOf(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	if t.all >= triesAll || t.from[from] >= triesFrom {
		after := max(time.Second, t.since.Add(triesTime).Sub(t.now()))
		return nil, &httpError{http.StatusTooManyRequests, fault.Wait(after, "TooManyTries", errors.New("too many failed attempts to sign in"))}
	}
	t.all++
	t.from[from]++
	since := t.since
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.since.Equal(since) {
			t.all--
			t.from[from]--
		}
	}, nil
}

func (t *tries) roll() {
	if now := t.now(); t.from == nil || now.Sub(t.since) >= triesTime {
		t.since, t.all, t.from = now, 0, map[string]int{}
	}
}

func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

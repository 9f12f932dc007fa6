package web

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// tries bounds how often somebody may fail to sign in. What they guess cannot
// be guessed; but each try makes the cluster think.
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

// begin takes a try, or says that there is none left for whoever sent r. One
// that succeeds, or that was no guess, is given back; it is taken before, so that
// a thousand at once are no more than a thousand in turn.
//
// Only what makes others work is a try: a token, which the cluster is asked
// about, and the answer of an issuer to an errand of ours. What any page can have
// a browser do, as to open a link with a code that never was, uses up none: it
// would keep people out who share an address.
func (t *tries) begin(r *http.Request) (succeeded func(), err error) {
	from := addressOf(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	if t.all >= triesAll || t.from[from] >= triesFrom {
		after := max(time.Second, t.since.Add(triesTime).Sub(t.now()))
		return nil, &httpError{http.StatusTooManyRequests, fault.Wait(after, "TooManyTries", errors.New("too many tries to sign in failed"))}
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

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

// left says that there is no try left for whoever sent r, if so.
func (t *tries) left(r *http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	if t.all < triesAll && t.from[addressOf(r)] < triesFrom {
		return nil
	}
	after := max(time.Second, t.since.Add(triesTime).Sub(t.now()))
	return &httpError{http.StatusTooManyRequests, fault.Wait(after, "TooManyTries", errors.New("too many tries to sign in failed"))}
}

// failed counts a try that failed.
func (t *tries) failed(r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	t.all++
	t.from[addressOf(r)]++
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

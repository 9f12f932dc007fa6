package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Audit is the journal, to write to.
type Audit interface {
	// Record returns once the entry is on the disk.
	Record(context.Context, query.AuditEntry) error
}

// audit records what the person of a request does. Whoever and Via are filled in
// if they are empty. A handler that shows what is secret records it first, and
// shows nothing if that fails.
func (s *server) audit(c *gin.Context, e query.AuditEntry) error {
	if s.Audit == nil {
		return nil
	}
	if e.Who == "" {
		e.Who = userOf(c).Name
	}
	if e.Via == "" {
		e.Via = viaOf(c)
	}
	err := s.Audit.Record(c.Request.Context(), e)
	if err != nil {
		s.Log.Error("journal not written", "request", c.GetString(keyRequest), "what", e.What, "user", e.Who, "err", err)
	}
	return err
}

// viaOf is the way on which a request came.
func viaOf(c *gin.Context) query.AuditVia {
	switch {
	case c.GetBool(keyBrowser):
		return query.ViaUI
	case strings.HasPrefix(c.GetHeader("User-Agent"), query.ClientAgent):
		return query.ViaCLI
	default:
		return query.ViaAPI
	}
}

// refused records a command of somebody who has no right to it. What strangers
// are told is no command: their attempts to sign in are recorded where they are
// made.
func (s *server) refused(c *gin.Context, err error) {
	user := userOf(c)
	if s.Audit == nil || user.Name == "" || fault.Of(err) != fault.Denied || c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
		return
	}
	s.refusedOne(c, keyOf(c), err)
}

// refusedOne records it of one of the objects that a command is about.
func (s *server) refusedOne(c *gin.Context, key query.Key, err error) {
	if s.Audit == nil || fault.Of(err) != fault.Denied {
		return
	}
	more, ok := s.refusals.take(userOf(c).Name, s.Now())
	if !ok {
		return
	}
	e := query.AuditEntry{
		What: query.AuditDenied, Why: err.Error(), Outcome: fault.Reason(err, string(fault.Denied)),
		Object:  query.AuditObject{Namespace: key.Namespace, Name: key.Name},
		Details: map[string]string{"request": c.Request.Method + " " + c.FullPath(), "unrecorded": unrecorded(more)},
	}
	_ = s.audit(c, e) // it was refused in any case; the log has what came in the way
}

// signedIn notes that somebody became known to a browser.
func (s *server) signedIn(c *gin.Context, who, by string, more ...any) {
	s.Log.Info("signed in", append([]any{"user", who, "by", by}, more...)...)
	_ = s.audit(c, query.AuditEntry{What: query.AuditSignedIn, Who: who, Details: map[string]string{"by": by}}) // they may look all the same
}

// signInRefused records that somebody did not become known. Who it was is not
// known, and what they typed is not kept.
func (s *server) signInRefused(c *gin.Context, err error) {
	if more, ok := s.refusals.take("", s.Now()); ok {
		_ = s.audit(c, query.AuditEntry{ // they were refused in any case
			What: query.AuditSignInRefused, Why: err.Error(), Outcome: fault.Reason(err, string(fault.Denied)),
			Details: map[string]string{"address": addressOf(c.Request), "unrecorded": unrecorded(more)},
		})
	}
}

// unrecorded is how many were left out, empty if none was.
func unrecorded(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// What refused requests may add to the journal in a minute: whoever may do
// nothing may not fill the disk either. Each person has a part of it, so that
// nobody hides what somebody else tries behind a noise of their own. Those beyond
// it are counted in the next entry.
const (
	refusalsPerMinute = 60 // of one person, or of all strangers
	refusalsOfAll     = 600
)

// refusals counts what was refused.
type refusals struct {
	mu    sync.Mutex
	since time.Time
	all   int
	taken map[string]int // by person; those of strangers have no name
	left  int            // refused and not recorded since the last that was
}

// take reports whether one more of who may be recorded, and how many were not
// before it.
func (r *refusals) take(who string, now time.Time) (left int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil || now.Sub(r.since) >= time.Minute {
		r.since, r.all, r.taken = now, 0, map[string]int{}
	}
	if r.all >= refusalsOfAll || r.taken[who] >= refusalsPerMinute {
		r.left++
		return 0, false
	}
	r.all++
	r.taken[who]++
	left, r.left = r.left, 0
	return left, true
}

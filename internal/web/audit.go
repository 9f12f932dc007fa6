package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Audit is the audit log, for writing.
type Audit interface {
	// Record returns once the entry is on the disk.
	Record(context.Context, query.AuditEntry) error
}

// audit records an action of the user of a request. Who and Via are filled in
// if they are empty. A handler that shows secrets records it first, and
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
		s.Log.Error("audit log not written", "request", c.GetString(keyRequest), "what", e.What, "user", e.Who, "err", err)
	}
	return err
}

// viaOf is the interface of a request.
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

// refused records a command of a user without the permission for it. Requests without a
// user are not commands: attempts to sign in are recorded by
// signInRefused.
func (s *server) refused(c *gin.Context, err error) {
	user := userOf(c)
	if s.Audit == nil || user.Name == "" || fault.Of(err) != fault.Denied || c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
		return
	}
	s.refusedOne(c, keyOf(c), err)
}

// refusedOne records it for one of the objects of a command.
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
	_ = s.audit(c, e) // the command was refused in any case; audit logs the error
}

// signedIn records that a user signed in.
func (s *server) signedIn(c *gin.Context, who, by string, more ...any) {
	s.Log.Info("signed in", append([]any{"user", who, "by", by}, more...)...)
	_ = s.audit(c, query.AuditEntry{What: query.AuditSignedIn, Who: who, Details: map[string]string{"by": by}}) // audit logs the error; the user is signed in
}

// signInRefused records a failed sign-in. The user is not
// known, and the input is not recorded.
func (s *server) signInRefused(c *gin.Context, err error) {
	if more, ok := s.refusals.take("", s.Now()); ok {
		_ = s.audit(c, query.AuditEntry{ // audit logs the error; the sign-in failed in any case
			What: query.AuditSignInRefused, Why: err.Error(), Outcome: fault.Reason(err, string(fault.Denied)),
			Details: map[string]string{"address": addressOf(c.Request), "unrecorded": unrecorded(more)},
		})
	}
}

// unrecorded is how many refusals were not recorded, empty for none.
func unrecorded(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Limits of refused requests in the audit log per minute, so that they do not
// fill the disk. Each user has a limit, so that
// refusals of one user do not hide those of another. The next entry counts those
// beyond the limits.
const (
	refusalsPerMinute = 60 // of one user, or of all requests without a user
	refusalsOfAll     = 600
)

// refusals counts refused requests.
type refusals struct {
	limit limit        // by user; requests without a user have no name
	left  atomic.Int64 // not recorded since the last entry
}

func newRefusals() *refusals {
	return &refusals{limit: limit{each: refusalsPerMinute, all: refusalsOfAll}}
}

// take reports whether one more refusal of who may be recorded, and how many were
// not before it.
func (r *refusals) take(who string, now time.Time) (left int, ok bool) {
	if _, wait := r.limit.take(who, now); wait > 0 {
		r.left.Add(1)
		return 0, false
	}
	return int(r.left.Swap(0)), true
}

package web

import (
	"context"
	"log/slog"
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

// auditor writes the audit log.
type auditor struct {
	to       Audit // nil without an audit log
	log      *slog.Logger
	now      func() time.Time
	refusals *refusals
}

// record records an action of the user of a request. Who and Via are filled in
// if they are empty. A handler that shows secrets records it first, and
// shows nothing if that fails.
func (a *auditor) record(c *gin.Context, e query.AuditEntry) error {
	if a.to == nil {
		return nil
	}
	if e.Who == "" {
		e.Who = userOf(c).Name
	}
	if e.Via == "" {
		e.Via = viaOf(c)
	}
	err := a.to.Record(c.Request.Context(), e)
	if err != nil {
		a.log.Error("audit log not written", "request", c.GetString(keyRequest), "what", e.What, "user", e.Who, "err", err)
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
func (a *auditor) refused(c *gin.Context, err error) {
	user := userOf(c)
	if a.to == nil || user.Name == "" || fault.Of(err) != fault.Denied || c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
		return
	}
	a.refusedOne(c, keyOf(c), err)
}

// refusedOne records it for one of the objects of a command.
func (a *auditor) refusedOne(c *gin.Context, key query.Key, err error) {
	if a.to == nil || fault.Of(err) != fault.Denied {
		return
	}
	more, ok := a.refusals.take(userOf(c).Name, a.now())
	if !ok {
		return
	}
	of := query.AuditObject{Namespace: key.Namespace, Name: key.Name} // a stack of the first kind, or something else
	if key.Kind != "" {
		of = query.AuditObjectOf(key)
	}
	e := query.AuditEntry{
		What: query.AuditDenied, Object: of, Why: err.Error(), Outcome: fault.Reason(err, string(fault.Denied)),
		Details: map[string]string{"request": c.Request.Method + " " + c.FullPath(), "unrecorded": unrecorded(more)},
	}
	_ = a.record(c, e) // the command was refused in any case; record logs the error
}

// signedIn records that a user signed in.
func (a *auditor) signedIn(c *gin.Context, who, by string, more ...any) {
	a.log.Info("signed in", append([]any{"user", who, "by", by}, more...)...)
	_ = a.record(c, query.AuditEntry{What: query.AuditSignedIn, Who: who, Details: map[string]string{"by": by}}) // record logs the error; the user is signed in
}

// signInRefused records a failed sign-in. The user is not
// known, and the input is not recorded.
func (a *auditor) signInRefused(c *gin.Context, err error) {
	if more, ok := a.refusals.take("", a.now()); ok {
		_ = a.record(c, query.AuditEntry{ // record logs the error; the sign-in failed in any case
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

package web

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

const (
	keyUser    = "user"
	keyRequest = "request"
	keyBrowser = "browser" // the request is of a browser, for a page
	keyLater   = "later"   // the status that has the caller come again
	keyToken   = "token"   // the request has a token for the registry
)

// Time beyond that of a request: the context ends before the body, so that a late request
// differs from one whose caller has gone, and the answer that says so can still be sent.
const (
	bodyAfter   = 50 * time.Millisecond
	answerAfter = 5 * time.Second
)

// guard stands before every row: it refuses requests that the row is not for.
type guard struct {
	callers  callers
	entrance *entrance
	replies  *replies
	replicas Replicas // nil if this server is the only one
	kinds    query.Kinds
	hosts    []string
	limits   Limits
	seats    seats // of requests that hold a whole state
	log      *slog.Logger
	now      func() time.Time
}

// logged logs each request.
func (g *guard) logged(c *gin.Context) {
	c.Next()
	level := slog.LevelDebug
	if c.Writer.Status() >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	g.log.Log(c.Request.Context(), level, "request served", "request", c.GetString(keyRequest), "method", c.Request.Method,
		"path", askedPath(c), "status", c.Writer.Status(), "user", userOf(c).Name)
}

// askedPath is the path of a request for a log: the pattern of its route, which is the same
// for all stacks. A route of a whole subtree says nothing about what was asked for, so there
// it is the path itself. Signatures are parameters, and in no path.
func askedPath(c *gin.Context) string {
	if strings.Contains(c.FullPath(), "/*") {
		return c.Request.URL.Path
	}
	return c.FullPath()
}

// hardened sets the security headers of every answer, and removes request
// headers about the user: the user comes from the token alone.
func hardened(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	for name := range c.Request.Header {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Forwarded-") {
			c.Request.Header.Del(name)
		}
	}
	c.Next()
}

// called refuses other host names, with which pages of other sites
// reach servers on this machine. Another replica, whose address is a name of its own,
// has done that for the requests that it forwards.
func (g *guard) called(c *gin.Context) {
	if g.replicas != nil && g.replicas.Forwarded(c.Request.Context()) {
		c.Next()
		return
	}
	host := c.Request.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if !slices.Contains(g.hosts, host) {
		g.replies.refuse(c, errHost)
		return
	}
	c.Next()
}

// sameOrigin refuses requests that pages of other sites cause. A request with the
// session cookie has to come from a page of ours even for reading, since a stream
// is a read, too.
func (g *guard) sameOrigin(c *gin.Context) {
	err := http.NewCrossOriginProtection().Check(c.Request)
	if err != nil || g.callers.sessions.shown(c.Request) && !fromOwnPage(c.Request) {
		g.replies.refuse(c, errOrigin)
		return
	}
	c.Next()
}

// arriving bounds the time of a body that no handler reads: net/http waits for it before it
// sends an answer, also to a caller without a token. A request without a body gets no such
// deadline, since the deadline would end its context.
func (g *guard) arriving(c *gin.Context) {
	if c.Request.ContentLength != 0 {
		if err := readUntil(c, g.now().Add(g.limits.Unread)); err != nil {
			g.replies.refuse(c, err)
			return
		}
	}
	c.Next()
}

// receives gives a body all the time of its request: the caller may send it.
func receives(c *gin.Context) error {
	end, has := c.Request.Context().Deadline()
	if !has || c.Request.ContentLength == 0 {
		return nil
	}
	return readUntil(c, end.Add(bodyAfter))
}

func readUntil(c *gin.Context, t time.Time) error {
	err := http.NewResponseController(c.Writer).SetReadDeadline(t)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// bounded sets the limits of time and size of a request. A body has less time until the
// caller has passed the door.
func (g *guard) bounded(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Set(keyBrowser, r.browser)
		c.Set(keyLater, cmp.Or(r.later, http.StatusServiceUnavailable))
		within := r.within(g.limits)
		ctx, cancel := context.WithTimeout(c.Request.Context(), within)
		defer cancel()
		c.Request = c.Request.WithContext(access.Via(access.From(ctx, addressOf(c.Request)), viaOf(c)))
		c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, r.body)
		arrives := within + bodyAfter
		if c.Request.ContentLength != 0 {
			arrives = min(arrives, g.limits.Unread)
		}
		now := g.now()
		err := http.NewResponseController(c.Writer).SetWriteDeadline(now.Add(within + answerAfter))
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		if err := errors.Join(err, readUntil(c, now.Add(arrives))); err != nil {
			g.replies.refuse(c, err)
			return
		}
		c.Next()
	}
}

// named reads the kind of a stack, which is a part of its name in addresses of kinds
// other than the first, and makes it a variable of the path.
func (g *guard) named(r route) gin.HandlerFunc {
	ofStack := strings.Contains(r.path, "/stacks/:") || strings.Contains(r.path, "/retained/:")
	return func(c *gin.Context) {
		for i := range c.Params {
			kind, name := query.SplitAddress(c.Params[i].Value)
			if c.Params[i].Key != "name" || !ofStack || kind == "" {
				continue
			}
			key, err := query.Canonical(g.kinds, query.Key{Name: name, Kind: kind})
			if err != nil {
				g.replies.refuse(c, err)
				return
			}
			c.Params[i].Value = key.Name
			c.AddParam("kind", key.Kind)
			break
		}
		c.Next()
	}
}

// allowed checks the door and the permission of r.
func (g *guard) allowed(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		if r.door == open {
			c.Next()
			return
		}
		identify := g.callers.identify
		if r.tokens {
			identify = g.callers.identifyForRegistry
		}
		user, err := identify(c.Request)
		if err != nil {
			g.challenge(c, err)
			return
		}
		c.Set(keyUser, user)
		c.Set(keyToken, r.tokens && g.callers.byToken(c.Request))
		g.entrance.renew(c)
		switch r.door {
		case known:
		case guarded:
			right, err := r.access(c)
			if errors.Is(err, errEveryUser) {
				break
			}
			if err == nil {
				err = g.callers.auth.Authorize(c.Request.Context(), user, right)
			}
			if err != nil {
				g.replies.refuse(c, err)
				return
			}
		default:
			g.replies.refuse(c, errNoRoute)
			return
		}
		if !r.parts {
			if err := receives(c); err != nil {
				g.replies.refuse(c, err)
				return
			}
		}
		c.Next()
	}
}

// seated has a request wait for a seat, if its handler holds a whole state in memory. A user
// who sends or reads many states at once waits for that user's own, and leaves the memory of
// the server to others.
func (g *guard) seated(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !r.whole {
			c.Next()
			return
		}
		one, err := g.seats.take(c.Request.Context(), userOf(c).Name, mostHeld(r, c.Request.ContentLength), g.limits.Seat)
		if err != nil {
			if fault.Reason(err, "") == access.ReasonNoSeat {
				err = &httpError{http.StatusTooManyRequests, err}
			}
			g.replies.refuse(c, err)
			return
		}
		defer one.leave()
		c.Writer = &seatedWriter{c.Writer, one}
		c.Next()
	}
}

// challenge refuses a request without a user and asks for credentials.
func (g *guard) challenge(c *gin.Context, err error) {
	if fault.Of(err) != fault.Denied {
		g.replies.refuse(c, err)
		return
	}
	if c.GetBool(keyBrowser) {
		g.entrance.toSignIn(c)
		return
	}
	scheme := "Bearer"
	if strings.HasPrefix(c.FullPath(), registryPrefix+"/") {
		scheme = "Basic" // a Bearer challenge would send clients to look for a token server
	}
	c.Header("WWW-Authenticate", scheme+` realm="terrier"`)
	g.replies.refuse(c, &httpError{http.StatusUnauthorized, err})
}

func userOf(c *gin.Context) access.User {
	u, _ := c.Get(keyUser)
	user, _ := u.(access.User)
	return user
}

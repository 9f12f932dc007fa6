package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// SessionOptions are the settings of browser sessions.
type SessionOptions struct {
	Key      secret.Text   // the keys of cookies are derived from it; without one, sessions end with the process
	Life     time.Duration // maximum lifetime of a session: 12h
	Idle     time.Duration // timeout without an opened page or a sent form: 2h
	SignOuts SignOuts      // in memory only if nil
}

// SignOuts are the sessions that were ended before they expired. A copy of such a
// cookie is invalid.
type SignOuts interface {
	End(ctx context.Context, id string, until time.Time) error
	Ended(id string) bool
}

// session is the sealed content of the cookie of a browser: the identity that the user
// signed in with. The permissions are checked for each request.
type session struct {
	ID    string  `json:"i"`
	Until int64   `json:"u"` // Unix time of its end
	Seen  int64   `json:"s"` // Unix time of its last use, within seenEvery
	Token string  `json:"t,omitempty"`
	Known *issued `json:"k,omitempty"` // by an issuer, in place of a token
}

// issued is a user as an issuer identified it.
type issued struct {
	Name    string   `json:"n"`
	Groups  []string `json:"g,omitempty"`
	Subject string   `json:"s"`
}

func (i issued) user() access.User {
	return access.User{Name: i.Name, Groups: append([]string{"system:authenticated"}, i.Groups...)}
}

// sessions seals and opens the cookies of sessions.
type sessions struct {
	SessionOptions
	seal sealer
	name string // of the cookie
	now  func() time.Time
}

const (
	sessionPurpose = "terrier browser session v1"
	cookieBytes    = 4096            // of name and value: the limit of browsers
	seenEvery      = 5 * time.Minute // how exact Seen is
)

func newSessions(o SessionOptions, now func() time.Time) (*sessions, error) {
	if o.Key.Empty() {
		o.Key = secret.New(randomName())
	}
	o.Life, o.Idle = cmp.Or(o.Life, 12*time.Hour), cmp.Or(o.Idle, 2*time.Hour)
	if o.SignOuts == nil {
		o.SignOuts = NewEndedSessions(now)
	}
	seal, err := newSealer(o.Key, sessionPurpose)
	if err != nil {
		return nil, err
	}
	// Browsers do not tell ports apart: two servers on one machine would overwrite
	// each other's cookie if it had the same name.
	id, err := publicID(o.Key)
	return &sessions{SessionOptions: o, seal: seal, name: "__Host-terrier-" + id, now: now}, err
}

// begin fills a session that starts now.
func (s *sessions) begin(of session) session {
	now := s.now()
	of.ID, of.Seen, of.Until = randomName(), now.Unix(), now.Add(s.Life).Unix()
	return of
}

var (
	errTokenLong  = fault.New(fault.Invalid, "TokenTooLong", errors.New("the token is too long: a cookie has at most 4 KiB"))
	errGroupsLong = fault.New(fault.Invalid, "GroupsTooLong", errors.New("the issuer sent too many groups: a cookie has at most 4 KiB"))
)

func (s *sessions) cookie(x session) (*http.Cookie, error) {
	value, err := s.seal.seal(x)
	if err != nil {
		return nil, err
	}
	if len(s.name)+1+len(value) > cookieBytes {
		if x.Known != nil {
			return nil, errGroupsLong
		}
		return nil, errTokenLong
	}
	// It has no expiry, so that it also ends when the browser is closed.
	return &http.Cookie{Name: s.name, Value: value, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}, nil
}

// cleared deletes the cookie of a browser.
func (s *sessions) cleared() *http.Cookie {
	return &http.Cookie{Name: s.name, Path: "/", MaxAge: -1, HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
}

// shown reports whether a request is authenticated by its cookie: it has one,
// and no other credentials.
func (s *sessions) shown(r *http.Request) bool {
	programs := strings.HasPrefix(r.URL.Path, registryPrefix+"/") || strings.HasPrefix(r.URL.Path, packagesPrefix+"/")
	if r.Header.Get("Authorization") != "" || programs {
		return false
	}
	_, err := r.Cookie(s.name)
	return err == nil
}

// open returns the session of a request, and Denied if it has none that is good.
func (s *sessions) open(r *http.Request) (session, error) {
	denied := func(why string) (session, error) {
		return session{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New(why))
	}
	cookie, err := r.Cookie(s.name)
	if err != nil {
		return denied("no user is signed in")
	}
	var x session
	if err := s.seal.open(cookie.Value, &x); err != nil {
		return denied("the session does not belong to this server")
	}
	now := s.now()
	switch {
	case now.Unix() >= x.Until:
		return denied(fmt.Sprintf("the session has expired after %s", s.Life))
	case now.Unix() >= x.Seen+int64(s.Idle/time.Second):
		return denied(fmt.Sprintf("the session has expired after %s without use", s.Idle))
	case s.SignOuts.Ended(x.ID):
		return denied("the session has ended: the user signed out")
	}
	return x, nil
}

// seen returns x after a request of the user, and whether the
// browser needs the new cookie. Automatic requests of a page do not extend a session.
func (s *sessions) seen(x session, r *http.Request) (session, bool) {
	mode := r.Header.Get("Sec-Fetch-Mode")
	if mode != "" && mode != "navigate" || s.now().Unix() < x.Seen+int64(seenEvery/time.Second) {
		return x, false
	}
	x.Seen = s.now().Unix()
	return x, true
}

// fromOwnPage reports whether a request with a cookie was caused by
// a page of ours or by the user of the browser. A link on another site may lead
// here and do no more than that; browsers that do not send the origin of a request
// may only read.
func fromOwnPage(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return reads
		}
		u, err := url.Parse(origin)
		return err == nil && u.Scheme == "https" && u.Host == r.Host
	default:
		return reads && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
}

// ledHere reports whether a page of another site led the browser here.
func ledHere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// EndedSessions are SignOuts in memory.
type EndedSessions struct {
	now func() time.Time

	mu    sync.Mutex
	until map[string]time.Time
	swept time.Time // when expired ones were dropped last
}

// NewEndedSessions returns that no session was ended.
func NewEndedSessions(now func() time.Time) *EndedSessions {
	return &EndedSessions{now: now, until: map[string]time.Time{}}
}

// sweptEvery is how often expired sessions are looked for: each time all are looked at, while
// requests that ask about a session wait.
const sweptEvery = time.Minute

// End implements SignOuts. Expired sessions are dropped now and then, so that they do not
// fill the memory.
func (s *EndedSessions) End(_ context.Context, id string, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.swept).Abs() >= sweptEvery {
		s.expire(now)
	}
	s.until[id] = until
	return nil
}

func (s *EndedSessions) Ended(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.until[id])
}

// Expire drops the sessions that have expired, and returns them.
func (s *EndedSessions) Expire() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expire(s.now())
}

func (s *EndedSessions) expire(now time.Time) (ids []string) {
	s.swept = now
	for id, until := range s.until {
		if !now.Before(until) {
			ids = append(ids, id)
			delete(s.until, id)
		}
	}
	return ids
}

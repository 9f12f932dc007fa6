package web

import (
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// links are the unused sign-in links of the command line:
// each works once, and expires soon. Only the hash of its code is stored.
type links struct {
	now func() time.Time

	mu   sync.Mutex
	made map[[sha256.Size]byte]link
}

type link struct {
	name  string // of the user
	token secret.Text
	until time.Time
}

const (
	linkLife = time.Minute
	linksOf  = 16   // of one user at once
	linksAll = 1024 // together
)

var errLinks = &httpError{http.StatusTooManyRequests, fault.Wait(linkLife, "TooManyLinks", errors.New("too many sign-in links are unused"))}

// make returns the code of a new link.
func (l *links) make(name string, token secret.Text) (string, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, own := l.now(), 0
	maps.DeleteFunc(l.made, func(_ [sha256.Size]byte, x link) bool {
		if !now.Before(x.until) {
			return true
		}
		if x.name == name {
			own++
		}
		return false
	})
	if own >= linksOf || len(l.made) >= linksAll {
		return "", time.Time{}, errLinks
	}
	if l.made == nil {
		l.made = map[[sha256.Size]byte]link{}
	}
	code, until := randomName(), now.Add(linkLife)
	l.made[sha256.Sum256([]byte(code))] = link{name, token, until}
	return code, until, nil
}

// look returns the user of a code. It changes nothing, so that a program that
// fetches every address uses up no link.
func (l *links) look(code string) (name string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x, ok := l.made[sha256.Sum256([]byte(code))]
	return x.name, ok && l.now().Before(x.until)
}

// use takes the link of a code, which is invalid from then on.
func (l *links) use(code string) (secret.Text, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hash := sha256.Sum256([]byte(code))
	x, ok := l.made[hash]
	delete(l.made, hash)
	return x.token, ok && l.now().Before(x.until)
}

// makeLink returns a link that signs a browser in as the user of the
// token.
func (e *entrance) makeLink(c *gin.Context) {
	token := tokenOf(c.Request)
	if token.Empty() {
		e.replies.refuse(c, fault.New(fault.Denied, access.ReasonNoToken, errors.New("a sign-in link needs a token")))
		return
	}
	user := userOf(c)
	code, until, err := e.links.make(user.Name, token)
	if err != nil {
		e.replies.refuse(c, err)
		return
	}
	c.JSON(http.StatusCreated, command.SignInLink{Path: signInPath + "?" + url.Values{"code": {code}}.Encode(), Name: user.Name, Until: until})
}

// linkAPI is the row of the sign-in links of the command line.
type linkAPI struct{ *entrance }

func (a linkAPI) routes() []route {
	return []route{{method: http.MethodPost, path: api + "/sign-in-links", door: known, handle: a.makeLink,
		operation: operation{id: "makeSignInLink", area: "server", gives: reflect.TypeFor[command.SignInLink](), made: true,
			summary: "Creates a link that signs a browser in as the owner of the token. The link works once and expires after a minute."}}}
}

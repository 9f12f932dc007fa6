package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controller gives tokens of a life, by a clock that is ahead of that of the node, or behind.
type controller struct {
	life, ahead time.Duration

	mu    sync.Mutex
	given []time.Time // by the clock of the node
}

func (c *controller) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = append(c.given, time.Now())
	now := time.Now().Add(c.ahead).Round(0)
	text, err := json.Marshal(identity.Answer{Tokens: []identity.Issued{
		{Name: "x", Audience: "verifier", ID: fmt.Sprint(len(c.given)), Issued: now, Expires: now.Add(c.life), Token: fmt.Sprintf("head.body.%d", len(c.given))},
	}})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(text))), Request: r}, err
}

// newTokens are tokens of a run on a node, from a controller. They are not kept yet.
func newTokens(t *testing.T, c *controller) (*Tokens, *[]string) {
	t.Helper()
	dir, hidden := t.TempDir(), []string{}
	return &Tokens{target: "https://controller.example/tokens", client: &http.Client{Transport: c}, o: Options{
		Request: identity.Request{Tokens: []identity.Token{{Name: "x", Audience: "verifier"}}}, Phase: identity.Plan,
		Open: func() (*os.Root, error) { return os.OpenRoot(dir) }, Own: func(*os.File) error { return nil },
		Hide: func(values ...string) { hidden = append(hidden, values...) }, Begin: func(...string) {}, Told: func([]identity.Issued) {},
		Say: func(f string, a ...any) { t.Errorf("it says: "+f, a...) }, Now: time.Now,
	}}, &hidden
}

// The clock of a node may be wrong by more than the life of a token: the tokens are renewed
// at half of their life, as with a clock that is right.
func TestTheClockOfANodeDoesNotCount(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"the same clock": 0, "a node that is behind": 10 * time.Minute, "a node that is ahead": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &controller{life: 5 * time.Minute, ahead: ahead}
				tokens, _ := newTokens(t, c)
				if err := tokens.first(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() { tokens.keep(ctx) })
				for range 30 { // a program starts each minute
					<-time.After(time.Minute)
					tokens.Fresh(ctx)
				}
				stop()
				all.Wait()
				if len(c.given) != 13 {
					t.Errorf("in 30 minutes tokens of 5 minutes were made %d times, want 13", len(c.given))
				}
				for i := range c.given[1:] {
					if pause := c.given[i+1].Sub(c.given[i]); pause != c.life/2 {
						t.Errorf("the tokens %d are made %s after those before, want %s", i+1, pause, c.life/2)
					}
				}
			})
		})
	}
}

// A controller that gives the same tokens again has nothing hidden twice, and one that gives
// tokens which have expired gives none.
func TestTheSameTokensAgain(t *testing.T) {
	c := &controller{life: 5 * time.Minute}
	tokens, hidden := newTokens(t, c)
	for range 3 {
		if err := tokens.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.given = nil // so that its next token is the first one
	}
	if len(*hidden) != 2 {
		t.Errorf("%q are hidden, want one token and its signature", *hidden)
	}
	c.life = 0
	if err := tokens.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "have expired") {
		t.Errorf("renew() = %v, want that the tokens have expired", err)
	}
}

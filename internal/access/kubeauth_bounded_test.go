package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit/forged"
)

// asked is an Authority that knows tokens by a predicate, and counts the questions.
type asked struct {
	Authority
	knows     func(token string) bool
	questions atomic.Int32
	atOnce    atomic.Int32
	most      atomic.Int32
	takes     time.Duration
}

func (a *asked) Authenticate(_ context.Context, t secret.Text) (User, error) {
	a.questions.Add(1)
	if n := a.atOnce.Add(1); n > a.most.Load() {
		a.most.Store(n)
	}
	defer a.atOnce.Add(-1)
	if a.takes > 0 {
		<-time.After(a.takes)
	}
	if a.knows(t.Reveal()) {
		return User{Name: t.Reveal()}, nil
	}
	return User{}, fault.New(fault.Denied, ReasonUnknownUser, errors.New("the cluster does not know the token"))
}

func none(string) bool { return false }

func every(string) bool { return true }

// A token that cannot be valid is denied, and no question is asked about it. One that says
// nothing may be valid.
func TestTokensThatCannotBeValidAskNothing(t *testing.T) {
	s, now := forged.New(t), time.Now()
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	for name, token := range map[string]string{
		"nothing":                         "",
		"a token that is too long":        strings.Repeat("a", tokenBytes+1),
		"a token with a space":            "a b",
		"a token with a line end":         "a\nb",
		"an expired token":                s.Token(t, map[string]any{"exp": at(-time.Hour)}),
		"a token of 1970":                 s.Token(t, map[string]any{"exp": 0}),
		"a token of the future":           s.Token(t, map[string]any{"nbf": at(time.Hour), "exp": at(2 * time.Hour)}),
		"an expired token with an issuer": s.Token(t, map[string]any{"iss": "https://kubernetes.default.svc", "exp": at(-kube.TokenSkew - time.Minute)}),
	} {
		a := &asked{knows: every}
		u, err := NewBoundedAuth(a, func() time.Time { return now }).Authenticate(t.Context(), secret.New(token))
		if fault.Of(err) != fault.Denied || u.Name != "" || a.questions.Load() != 0 {
			t.Errorf("%s: %+v, %v after %d questions; want it denied without one", name, u, err, a.questions.Load())
		}
	}
	for name, token := range map[string]string{
		"a token of a file":             "correct-horse",
		"a token with other characters": "pässwort!",
		"three parts":                   "a.b.c",
		"a valid one":                   s.Token(t, map[string]any{"exp": at(time.Hour)}),
		"one without an end":            s.Token(t, map[string]any{"sub": "a"}),
		"one that expired by the difference of clocks":  s.Token(t, map[string]any{"exp": at(-time.Minute)}),
		"one of the future by the difference of clocks": s.Token(t, map[string]any{"nbf": at(time.Minute)}),
		"one whose claims are of another sort":          s.Token(t, map[string]any{"exp": "soon"}),
	} {
		a := &asked{knows: every}
		u, err := NewBoundedAuth(a, func() time.Time { return now }).Authenticate(t.Context(), secret.New(token))
		if err != nil || u.Name != token || a.questions.Load() != 1 {
			t.Errorf("%s: %+v, %v after %d questions; want it accepted after one", name, u, err, a.questions.Load())
		}
	}
}

// The answer about a token is believed for ten seconds and not beyond the end of the token, a no for
// two, and an answer that there was none not at all.
func TestAnswersAboutTokens(t *testing.T) {
	s, now := forged.New(t), time.Now().Truncate(time.Second)
	known := map[string]bool{"ann": true}
	a := &asked{knows: func(token string) bool { return known[token] }}
	b := NewBoundedAuth(a, func() time.Time { return now })
	is := func(token string, want fault.Kind, questions int32) {
		t.Helper()
		before := a.questions.Load()
		for range 10 {
			if _, err := b.Authenticate(t.Context(), secret.New(token)); fault.Of(err) != want {
				t.Fatalf("Authenticate() = %v, want %v", err, want)
			}
		}
		if n := a.questions.Load() - before; n != questions {
			t.Fatalf("%d questions, want %d", n, questions)
		}
	}
	is("ann", fault.None, 1)
	known["ann"] = false
	now = now.Add(userTTL - time.Nanosecond)
	is("ann", fault.None, 0)
	now = now.Add(time.Nanosecond)
	is("ann", fault.Denied, 1)
	known["ann"] = true
	now = now.Add(unknownTTL - time.Nanosecond)
	is("ann", fault.Denied, 0)
	now = now.Add(time.Nanosecond)
	is("ann", fault.None, 1)

	short := s.Token(t, map[string]any{"exp": now.Add(3 * time.Second).Unix()})
	known[short] = true
	is(short, fault.None, 1)
	known[short] = false
	now = now.Add(3 * time.Second)
	is(short, fault.Denied, 1)

	b.Authority = down{}
	is("bob", fault.Later, 0)
	b.Authority, known["bob"] = a, true
	is("bob", fault.None, 1)
}

// down is an API server that does not answer.
type down struct{ Authority }

func (down) Authenticate(context.Context, secret.Text) (User, error) {
	return User{}, fault.New(fault.Later, ReasonUnreachable, errors.New("the cluster cannot be reached"))
}

// However many tokens are sent that the cluster does not know, the API server is asked about a bounded number, few at
// once, from one address and from many; a token that was accepted before has its answer at
// once, and nothing is left over.
func TestFloodsOfTokens(t *testing.T) {
	for name, address := range map[string]func(n int) string{
		"one address":   func(int) string { return "192.0.2.1" },
		"no address":    func(int) string { return "" },
		"one network":   func(n int) string { return fmt.Sprintf("2001:db8::%x", n) },
		"many networks": func(n int) string { return fmt.Sprintf("2001:db8:%x::1", n) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asked{knows: func(token string) bool { return token == "ann" }, takes: 100 * time.Millisecond}
				b := NewBoundedAuth(a, time.Now)
				ann := func() {
					t.Helper()
					began := time.Now()
					if _, err := b.Authenticate(From(t.Context(), address(0)), secret.New("ann")); err != nil {
						t.Fatalf("a token that is known: %v", err)
					}
					if took := time.Since(began); took > a.takes {
						t.Fatalf("a token that was accepted before waits for %s", took)
					}
				}
				ann()
				const seconds, each = 25, 500 // so long that a token that was accepted is asked about again
				var denied, busy, other atomic.Int32
				for second := range seconds {
					for n := range each {
						go func() {
							_, err := b.Authenticate(From(t.Context(), address(n)), secret.New(fmt.Sprint("x", second, "-", n)))
							switch fault.Of(err) {
							case fault.Denied:
								denied.Add(1)
							case fault.Later:
								busy.Add(1)
							default:
								other.Add(1)
							}
						}()
					}
					synctest.Wait()
					ann()
					<-time.After(time.Second)
				}
				<-time.After(time.Minute)
				synctest.Wait()
				most := int32(turnsBurst + turnsOfAll*(seconds+10) + seconds + 1)
				if n := a.questions.Load(); n > most || n < turnsBurst/2 {
					t.Errorf("%d questions in %d seconds, want %d at most", n, seconds, most)
				}
				if n := a.most.Load(); n > turnsAtOnce+1 {
					t.Errorf("%d questions at once, want %d", n, turnsAtOnce)
				}
				if other.Load() != 0 || denied.Load()+busy.Load() != seconds*each || busy.Load() == 0 {
					t.Errorf("%d are denied, %d are to come again, and %d have another answer, of %d", denied.Load(), busy.Load(), other.Load(), seconds*each)
				}
				if n := b.answers.Len() + b.accepted.Len() + b.turns.of.Len(); n > 2*tokensCached+addressesMost {
					t.Errorf("%d things are remembered", n)
				}
			})
		})
	}
}

// An address that sends more than its share keeps no other waiting for longer than its share
// takes.
func TestAddressesHaveTheirOwnTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoundedAuth(&asked{knows: none}, time.Now)
		ask := func(address string, n int) error {
			_, err := b.Authenticate(From(t.Context(), address), secret.New(fmt.Sprint(address, n)))
			return err
		}
		for second := range 20 {
			refused := 0
			for n := range 1000 {
				if fault.Of(ask("192.0.2.1", second*1000+n)) == fault.Later {
					refused++
				}
			}
			if refused == 0 {
				t.Fatal("one address has a thousand questions a second")
			}
			if err := ask("192.0.2.2", second); fault.Of(err) != fault.Denied {
				t.Fatalf("a token of another address: %v", err)
			}
			<-time.After(time.Second)
		}
	})
}

// The same client has one address, whatever it uses of its network.
func TestFrom(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64", "2001:db8::ffff:1": "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64", "@": "@", "": "",
	} {
		if got := fromOf(From(t.Context(), address)); got != want {
			t.Errorf("From(%q) is %q, want %q", address, got, want)
		}
	}
	if got := fromOf(t.Context()); got != "" {
		t.Errorf("without an address: %q", got)
	}
}

package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/forged"
)

// forger makes tokens that no API server has signed.
type forger struct{ forged.Tokens }

func newForger(t *testing.T) forger {
	t.Helper()
	return forger{forged.New(t)}
}

// token says what it is told, with the claims of a pod for the rest. A claim that is nil is left
// out.
func (f forger) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": "https://kubernetes.default.svc", "aud": []string{"terrier-run"}, "exp": time.Now().Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{"namespace": "apps", "pod": map[string]string{"name": "run", "uid": "u"}},
	}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return f.Token(t, all)
}

// What a token says is read without a question, and one that cannot be valid is denied.
func TestReadToken(t *testing.T) {
	f := newForger(t)
	want := remote.Place{Namespace: "apps", Name: "run", UID: "u"}
	for name, claims := range map[string]map[string]any{
		"of a pod":                            nil,
		"for several audiences":               {"aud": []string{"other", "terrier-run"}},
		"for an audience as a text":           {"aud": "terrier-run"},
		"expired by the difference of clocks": {"exp": time.Now().Add(-time.Minute).Unix()},
	} {
		if got, err := readToken(f.token(t, claims), "terrier-run", time.Now()); err != nil || got != want {
			t.Errorf("a token %s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for name, token := range map[string]string{
		"nothing":                 "",
		"no token":                "x",
		"three parts":             "a.b.c",
		"very long":               strings.Repeat("a", tokenBytes+1),
		"of another audience":     f.token(t, map[string]any{"aud": []string{"another"}}),
		"without an audience":     f.token(t, map[string]any{"aud": nil}),
		"without an issuer":       f.token(t, map[string]any{"iss": nil}),
		"expired":                 f.token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"without an end":          f.token(t, map[string]any{"exp": nil}),
		"bound to no pod":         f.token(t, map[string]any{"kubernetes.io": map[string]any{"namespace": "apps"}}),
		"of no cluster":           f.token(t, map[string]any{"kubernetes.io": nil}),
		"with another sort of it": f.token(t, map[string]any{"kubernetes.io": "apps"}),
	} {
		if got, err := readToken(token, "terrier-run", time.Now()); fault.Of(err) != fault.Denied {
			t.Errorf("a token %s: %+v, %v; want it denied", name, got, err)
		}
	}
}

// Of which namespaces the pods are not listed follows from those that stacks are reconciled in.
func TestNamespacesThatAreLeftOut(t *testing.T) {
	for _, tt := range []struct {
		has  []string
		of   string
		want bool
	}{{nil, "apps", false}, {[]string{"shop", "apps"}, "apps", false}, {[]string{"shop"}, "apps", true}} {
		p := &Pods{config: Config{Namespaces: tt.has}}
		if got := p.LeftOut(tt.of); got != tt.want {
			t.Errorf("LeftOut(%s) of a controller with %q = %v, want %v", tt.of, tt.has, got, tt.want)
		}
	}
}

// counted counts the questions about tokens.
type counted struct {
	next http.RoundTripper
	n    *atomic.Int32
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		c.n.Add(1)
	}
	return c.next.RoundTrip(r)
}

// Each client that reaches the port can send any token: the API server hears little of that.
func TestTokensThatCannotBeValidAskNothing(t *testing.T) {
	c := testkit.Kube(t)
	var asked atomic.Int32
	api := rest.CopyConfig(c.Config)
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &asked} })
	p, err := New(Config{
		API: api, Installation: "0123456789abcdef", Namespaces: []string{c.Namespace}, Audience: "terrier-run",
		Settings: Settings{Image: "i", PullPolicy: corev1.PullIfNotPresent, Account: "default"},
		Server:   func() (string, []byte) { return "https://127.0.0.1:1", nil },
		Now:      time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newForger(t)
	for n := range 200 {
		for _, token := range []string{fmt.Sprint("x", n), f.token(t, map[string]any{"aud": []string{fmt.Sprint(n)}}), f.token(t, map[string]any{"exp": n})} {
			if _, err := p.Identify(t.Context(), token); fault.Of(err) != fault.Denied {
				t.Fatalf("Identify() = %v, want it denied", err)
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the API server was asked about %d of them, want none", n)
	}
	forged := f.token(t, nil)
	if _, err := p.Identify(t.Context(), forged); fault.Of(err) != fault.Denied {
		t.Errorf("Identify() of a forged token = %v, want it denied", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the API server was asked %d times about it, want once", n)
	}
	p.identities.refused.TTL = time.Hour
	another := f.token(t, map[string]any{"sub": "another"})
	for range 20 {
		if _, err := p.Identify(t.Context(), another); fault.Of(err) != fault.Denied {
			t.Errorf("Identify() of a forged token = %v, want it denied", err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the API server was asked %d times about two, want each once", n)
	}
}

// However many tokens say to be of one pod, or of unknown pods, those of another pod
// have their turn at once.
func TestQuestionsWaitForTheirOwnPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking()
		enter := func(uid string, ours bool) (leave func(), waits bool) {
			type turn struct {
				leave func()
				err   error
			}
			got := make(chan turn, 1)
			go func() {
				leave, err := a.enter(t.Context(), remote.Place{UID: uid}, ours)
				got <- turn{leave, err}
			}()
			synctest.Wait()
			select {
			case one := <-got:
				if one.err != nil {
					t.Errorf("a question about %s: %v", uid, one.err)
				}
				return one.leave, false
			default:
				go func() {
					if one := <-got; one.err == nil {
						one.leave()
					}
				}()
				return nil, true
			}
		}
		first, waits := enter("flooded", true)
		if waits {
			t.Fatal("the first question waits")
		}
		for range 1000 {
			if _, waits := enter("flooded", true); !waits {
				t.Fatal("two questions about one pod are asked at once")
			}
		}
		var leave []func()
		for n := range 100 {
			l, waits := enter(fmt.Sprint("stranger", n), false)
			if waits != (n >= askingStrangers) {
				t.Fatalf("the question %d about an unknown pod waits: %v", n+1, waits)
			}
			if l != nil {
				leave = append(leave, l)
			}
		}
		for n := range askingMost - 1 {
			l, waits := enter(fmt.Sprint("pod", n), true)
			if waits {
				t.Fatalf("a question about the pod %d waits for others", n)
			}
			leave = append(leave, l)
		}
		if _, waits := enter("one more", true); !waits {
			t.Errorf("more than %d questions are asked at once", askingMost)
		}
		// Those that waited give up in time.
		<-time.After(2 * askingPatience)
		synctest.Wait()
		if _, err := a.enter(t.Context(), remote.Place{UID: "flooded"}, true); !errors.Is(err, errAsking) {
			t.Errorf("a question that waits for too long: %v", err)
		}
		first()
		for _, l := range leave {
			l()
		}
		if len(a.of) != 0 {
			t.Errorf("%d pods are remembered when no question waits", len(a.of))
		}
		ended, end := context.WithCancel(t.Context())
		end()
		one, err := a.enter(t.Context(), remote.Place{UID: "pod"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.enter(ended, remote.Place{UID: "pod"}, true); err == nil {
			t.Error("a request that has ended has its turn")
		}
		one()
	})
}

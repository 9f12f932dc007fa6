package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web/metacontroller"
)

// slow is an API server that answers no question of one sort before the request ends.
type slow struct {
	*roles
	t        *testing.T
	question string
}

func (s slow) wait(ctx context.Context, question string) error {
	if question != s.question {
		return nil
	}
	if ends, bounded := ctx.Deadline(); !bounded || time.Until(ends) > time.Second {
		s.t.Errorf("%s may take until %v, want a second at most", question, ends)
		return errors.New("it would take too long")
	}
	<-ctx.Done()
	return access.Fault(ctx.Err(), question)
}

func (s slow) Authenticate(ctx context.Context, t secret.Text) (access.User, error) {
	if err := s.wait(ctx, "the review of a token"); err != nil {
		return access.User{}, err
	}
	return s.roles.Authenticate(ctx, t)
}

func (s slow) Authorize(ctx context.Context, u access.User, r access.Request) error {
	if err := s.wait(ctx, "the review of an access"); err != nil {
		return err
	}
	return s.roles.Authorize(ctx, u, r)
}

func (s slow) object(ctx context.Context, _ metacontroller.Key) (metacontroller.Observed, error) {
	return metacontroller.Observed{UID: "u", Generation: 1, Seen: true}, s.wait(ctx, "the object")
}

// Each part of a hook that takes too long has metacontroller come again, within a second
// and with the one status that metacontroller does not take for an error.
func TestHooksThatAreLateComeAgain(t *testing.T) {
	request, err := os.ReadFile(filepath.Join("metacontroller", "testdata", "composite-sync-v2.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, question := range []string{"the review of a token", "the review of an access", "the object", "the request"} {
		for protocol, start := range map[string]func(*httptest.Server){"HTTP1": (*httptest.Server).Start, "HTTP2": (*httptest.Server).StartTLS} {
			t.Run(question+" by "+protocol, func(t *testing.T) {
				t.Parallel()
				auth := slow{newRoles(), t, question}
				o := options(auth)
				o.Hooks = metacontroller.NewHandler(auth.object, slog.New(slog.DiscardHandler))
				h, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				srv := httptest.NewUnstartedServer(h)
				srv.EnableHTTP2 = true
				start(srv)
				defer srv.Close()
				var body io.Reader = strings.NewReader(string(request))
				if question == "the request" {
					r, w := io.Pipe()
					defer w.Close()
					body = r // it never ends
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+metacontroller.SyncPath, body)
				if err != nil {
					t.Fatal(err)
				}
				bearer(req)
				resp, err := srv.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || err != nil {
					t.Errorf("%s %s, Retry-After %q, %v; want 429 and when to try again", resp.Status, text, resp.Header.Get("Retry-After"), err)
				}
			})
		}
	}
}

// unreachable is an API server that cannot be reached.
type unreachable struct{ *roles }

func (unreachable) Authenticate(context.Context, secret.Text) (access.User, error) {
	return access.User{}, fault.New(fault.Later, access.ReasonUnreachable, errors.New("the cluster cannot be reached"))
}

// Without an API server, too, metacontroller comes again, and other callers get the usual
// status.
func TestHooksWithoutAnAPIServerComeAgain(t *testing.T) {
	u, c := serve(t, options(unreachable{newRoles()}))
	for path, want := range map[string]int{metacontroller.SyncPath: http.StatusTooManyRequests, metacontroller.FinalizePath: http.StatusTooManyRequests,
		metacontroller.CustomizePath: http.StatusTooManyRequests, registryPrefix + "/": http.StatusServiceUnavailable} {
		if resp, body := ask(t, c, http.MethodPost, u.String()+path, bearer); resp.StatusCode != want || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s is %s %s, Retry-After %q; want %d and when to try again", path, resp.Status, body, resp.Header.Get("Retry-After"), want)
		}
	}
}

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// web is a server of everything that an HTTP check may meet.
func web(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, code := range map[string]int{"/200": 200, "/204": 204, "/304": 304, "/399": 399, "/400": 400, "/500": 500} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	mux.HandleFunc("/hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscan(r.PathValue("n"), &n); err == nil && n > 0 {
			http.Redirect(w, r, fmt.Sprintf("/hop/%d", n-1), http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusTeapot)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		_, port, _ := net.SplitHostPort(r.Host)
		http.Redirect(w, r, "http://localhost:"+port+"/500", http.StatusFound)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("the secret of the house"))
	})
	mux.HandleFunc("/header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeader))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestHTTPChecks(t *testing.T) {
	base := web(t).URL
	for path, want := range map[string]string{
		"/200":                      "answered 200 OK",
		"/204":                      "answered 204 No Content",
		"/304":                      "answered 304 Not Modified",
		"/399":                      "answered 399",
		"/400":                      "FAILED: answered 400 Bad Request",
		"/500":                      "FAILED: answered 500 Internal Server Error",
		"/hop/5":                    "FAILED: answered 418 I'm a teapot",
		"/hop/6":                    "FAILED: redirected more than 5 times",
		"/away":                     "answered 302 Found", // what it leads to is another host's
		"/endless":                  "answered 200 OK",
		"/short":                    "FAILED: answered 200 OK and then broke off: unexpected EOF",
		"/header":                   "FAILED: net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 65536 bytes; aborted",
		"/200\nHost: elsewhere":     "FAILED: the URL cannot be read",
		"/200 HTTP/1.1\r\nX: y\r\n": "FAILED: the URL cannot be read",
	} {
		c := Check{Name: "c", Kind: stack.HTTPCheck, Target: base + path, Timeout: time.Minute}
		got, err := c.ask(t.Context())
		if err != nil {
			got = "FAILED: " + err.Error()
		}
		if got != want {
			t.Errorf("GET %q %s, want %s", path, got, want)
		}
	}
}

func TestTargetsThatAreNotAsked(t *testing.T) {
	for target, want := range map[string]string{
		"http://user:word@127.0.0.1:1/": "the URL holds a user or a password",
		"file:///etc/passwd":            "the URL is not one of http or https",
		"127.0.0.1:1":                   "the URL cannot be read",
		"http:///path":                  "the URL has no host",
		"":                              "the URL is not one of http or https",
	} {
		if _, err := (Check{Kind: stack.HTTPCheck, Target: target}).ask(t.Context()); err == nil || err.Error() != want {
			t.Errorf("asking %q = %v, want %q", target, err, want)
		}
	}
	for target, want := range map[string]string{
		"127.0.0.1":       "the address is not of the form host:port",
		":80":             "the address is not of the form host:port",
		"a:b:c":           "the address is not of the form host:port",
		"127.0.0.1:80\n":  "the address holds a space or a control character",
		"127.0.0.1:1 x:2": "the address holds a space or a control character",
	} {
		if _, err := (Check{Kind: stack.TCPCheck, Target: target}).ask(t.Context()); err == nil || err.Error() != want {
			t.Errorf("dialling %q = %v, want %q", target, err, want)
		}
	}
	if _, err := (Check{Kind: "icmp"}).ask(t.Context()); err == nil {
		t.Error("a check of an unknown kind passes")
	}
}

// A certificate of an unknown authority is a failure.
func TestCertificatesAreVerified(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	s.Config.ErrorLog = nil
	_, err := (Check{Kind: stack.HTTPCheck, Target: s.URL}).ask(t.Context())
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("asking a server with a certificate of its own = %v, want it refused", err)
	}
}

func TestAnswersAreInOrder(t *testing.T) {
	base := web(t).URL
	var checks []Check
	for i := range 3 * checkers {
		c := Check{Name: fmt.Sprint(i), Kind: stack.HTTPCheck, Target: base + "/200", Shown: "it"}
		if i%3 == 0 {
			c.Target = base + "/500"
		}
		checks = append(checks, c)
	}
	question, err := json.Marshal(checks)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := answerHealth(bytes.NewReader(question), &out, func() time.Time { return time.Unix(0, 0) }); err != nil {
		t.Fatal(err)
	}
	var found []Health
	if err := json.Unmarshal(out.Bytes(), &found); err != nil || len(found) != len(checks) {
		t.Fatalf("answers = %s, %v; want one to each check", &out, err)
	}
	for i, h := range found {
		if h.Name != fmt.Sprint(i) || h.OK != (i%3 != 0) {
			t.Errorf("answer %d is %+v", i, h)
		}
	}
	if err := answerHealth(strings.NewReader("nonsense"), &out, time.Now); err == nil {
		t.Error("a question that cannot be read is answered")
	}
}

// A wait tells of the last answer, and not of the question that its end cut off.
func TestAWaitTellsTheLastAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		ready time.Duration // after which the server is
		want  string
	}{
		"the server comes up": {3 * time.Second, "ready"},
		"it does not":         {time.Hour, "FAILED: answered 503"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // in the middle of the fifth question
				defer cancel()
				got, err := askAgain(ctx, time.Second, func(ctx context.Context) (string, error) {
					if time.Since(began) >= tt.ready {
						return "ready", nil
					}
					select {
					case <-time.After(700 * time.Millisecond): // by the clock of the bubble
						return "", errors.New("answered 503")
					case <-ctx.Done():
						return "", errors.New("dial tcp: i/o timeout")
					}
				}, errors.New("connection refused"))
				if err != nil {
					got = "FAILED: " + err.Error()
				}
				if got != tt.want {
					t.Errorf("the wait ends with %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestChecksLast(t *testing.T) {
	for name, test := range map[string]struct {
		checks []Check
		want   time.Duration
	}{
		"one that does not say":     {make([]Check, 1), DefaultCheck + checkMargin},
		"the longest of a round":    {[]Check{{Timeout: time.Second}, {Timeout: time.Minute}}, time.Minute + checkMargin},
		"rounds":                    {make([]Check, checkers+1), 2*DefaultCheck + checkMargin},
		"one that says too much":    {[]Check{{Timeout: time.Hour}}, LongestCheck + checkMargin},
		"one with a negative limit": {[]Check{{Timeout: -1}}, DefaultCheck + checkMargin},
	} {
		if got := checksLast(test.checks); got != test.want {
			t.Errorf("%s: checksLast() = %v, want %v", name, got, test.want)
		}
	}
}

// However many checks fail and however much each has to say, each is named.
func TestEveryFailedCheckIsNamed(t *testing.T) {
	found := []Health{{Name: "well", OK: true}}
	for i := range 20 {
		found = append(found, Health{Name: fmt.Sprintf("check-%d", i), Message: strings.Repeat("long story ", 100)})
	}
	got := failedChecks(found)
	if len(got) > maxText || !strings.HasPrefix(got, "20 of 21 health checks failed: ") || strings.Contains(got, "well") {
		t.Errorf("failedChecks() has %d bytes and begins %.60q", len(got), got)
	}
	for _, h := range found[1:] {
		if !strings.Contains(got, h.Name+": long") {
			t.Errorf("%s is not named in %q", h.Name, got)
		}
	}
	if got := failedChecks(found[:1]); got != "" {
		t.Errorf("failedChecks() of a check that passed = %q", got)
	}
}

package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/recordstest"
)

// breaking serves a log and cuts every answer after some bytes. The newest run is
// another one as soon as the first answer was cut.
type breaking struct {
	log    string
	each   int          // bytes of an answer
	gone   bool         // nothing is kept any more once an answer was cut
	logged atomic.Int32 // answers
}

func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const runs = "/api/v1/namespaces/apps/stacks/net/runs/"
	switch r.URL.Path {
	case runs + "newest/report":
		run := "plan-1"
		if b.logged.Load() > 0 {
			run = "apply-2"
		}
		fmt.Fprintf(w, `{"id":%q}`, run)
	case runs + "plan-1/log":
		if b.logged.Add(1) > 1 && b.gone {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"it is gone","kind":"Missing","reason":"NotKept"}`)
			return
		}
		at, _ := strconv.Atoi(r.URL.Query().Get("after"))
		rest := b.log[at:]
		if len(rest) <= b.each {
			io.WriteString(w, rest)
			return
		}
		io.WriteString(w, rest[:b.each])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (b *breaking) follow(t *testing.T) (string, error) {
	t.Helper()
	srv := httptest.NewUnstartedServer(b)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	log, err := client.NewRecords(u, srv.Client()).Log(t.Context(), recordstest.Stack, "", query.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	return string(text), errors.Join(err, log.Close())
}

// A log that is followed goes on where it broke off, and with the same run.
func TestFollowedLogGoesOn(t *testing.T) {
	b := &breaking{log: "init\nplan\napply\ndone\n", each: 7}
	text, err := b.follow(t)
	if err != nil || text != b.log {
		t.Errorf("followed %q, %v; want %q", text, err, b.log)
	}
}

// What is gone is not waited for.
func TestFollowedLogThatIsGone(t *testing.T) {
	b := &breaking{log: "init\nplan\napply\ndone\n", each: 5, gone: true}
	text, err := b.follow(t)
	if fault.Of(err) != fault.Missing || text != "init\n" {
		t.Errorf("followed %q, %v; want what there was and that it is missing", text, err)
	}
}

// answers are those that a server gives to one request for a log after another;
// the last one to all that follow.
type answers []func() (*http.Response, error)

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return next()
}

func answer(body io.Reader) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}
}

var errCut = errors.New("cut")

// held is an answer that brings nothing and is cut after a while.
type held time.Duration

func (h held) Read([]byte) (int, error) {
	<-time.After(time.Duration(h))
	return 0, errCut
}

func (a answers) follow(t *testing.T) (string, error) {
	t.Helper()
	log, err := client.NewRecords(&url.URL{Scheme: "https", Host: "terrier"}, &http.Client{Transport: &a}).Log(t.Context(), recordstest.Stack, "plan-1", query.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	return string(text), errors.Join(err, log.Close())
}

// A run that is silent is followed however often a proxy cuts its log.
func TestFollowedLogThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := answers(slices.Repeat([]func() (*http.Response, error){answer(held(5 * time.Second))}, 50))
		text, err := append(a, answer(strings.NewReader("done\n"))).follow(t)
		if err != nil || text != "done\n" {
			t.Errorf("followed %q, %v; want its end", text, err)
		}
	})
}

// A log that a server cannot read is not asked for without end.
func TestFollowedLogThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, err := answers{answer(io.MultiReader(strings.NewReader("init\n"), iotest.ErrReader(errCut))), answer(iotest.ErrReader(errCut))}.follow(t)
		if fault.Of(err) != fault.Later || text != "init\n" {
			t.Errorf("followed %q, %v; want what there was and that there is no more", text, err)
		}
	})
}

// A server that does not come back is not waited for without end.
func TestFollowedLogOfServerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func() (*http.Response, error) { return nil, errCut }
		text, err := answers{answer(io.MultiReader(strings.NewReader("init\n"), iotest.ErrReader(errCut))), refused}.follow(t)
		if fault.Of(err) != fault.Later || text != "init\n" {
			t.Errorf("followed %q, %v; want what there was and that nobody answers", text, err)
		}
	})
}

package bucket_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

const limit = 4 << 20

// server is one that speaks the protocol of a cloud.
type server struct {
	url     string                               // of a bucket that is there: SCHEME://BUCKET/{prefix}?…
	missing string                               // of one that is not
	environ map[string]string                    // what its client finds there
	allow   []string                             // addresses besides that of the server
	wrong   func() (url string, env [][2]string) // with credentials that it refuses; nil if it takes all
}

func (s server) open(t *testing.T, url string, more ...[2]string) (*bucket.Store, error) {
	t.Helper()
	environ := func(name string) string {
		for _, e := range more {
			if e[0] == name {
				return e[1]
			}
		}
		return s.environ[name]
	}
	place, err := bucket.Parse(url, environ)
	if err != nil {
		t.Fatal(err)
	}
	store, err := bucket.Open(place, bucket.Options{Limit: limit, Scratch: t.TempDir(), Environ: environ, Allow: s.allow, Versions: true})
	if err == nil {
		t.Cleanup(func() { _ = store.Close() })
	}
	return store, err
}

// must opens a place of its own in the bucket.
func (s server) must(t *testing.T) *bucket.Store {
	t.Helper()
	store, err := s.open(t, strings.Replace(s.url, "{prefix}", strings.ToLower(rand.Text()), 1))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func s3Server(t *testing.T) server {
	backend := s3mem.New()
	if err := backend.CreateBucket("records"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s.Close)
	query := "?path-style=true&endpoint=" + url.QueryEscape(s.URL)
	return server{
		url: "s3://records/{prefix}" + query, missing: "s3://nowhere/x" + query,
		environ: map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
	}
}

func gcsServer(t *testing.T) server {
	program, err := filepath.Abs("../../../bin/fake-gcs-server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make bin/fake-gcs-server", err)
	}
	base := storage.StartGCS(t, program)
	resp, err := http.Post(base+"/storage/v1/b", "application/json", strings.NewReader(`{"name":"records"}`))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("making a bucket: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	query := "?credentials=none&endpoint=" + url.QueryEscape(base)
	return server{url: "gs://records/{prefix}" + query, missing: "gs://nowhere/x" + query}
}

// azureServer is Azurite, a program of Node that needs more than Go to be had.
func azureServer(t *testing.T) server {
	program, err := filepath.Abs("../../../bin/azurite/node_modules/.bin/azurite-blob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v: make bin/azurite, which needs npm", err)
	}
	base := storage.StartAzure(t, program) + "/" + storage.AzureAccount
	query := "?account=devstoreaccount1&endpoint=" + url.QueryEscape(base)
	makeContainer(t, base+"/records", storage.AzureKey)
	return server{
		url: "azblob://records/{prefix}" + query, missing: "azblob://nowhere/x" + query,
		environ: map[string]string{"AZURE_STORAGE_KEY": storage.AzureKey},
		wrong: func() (string, [][2]string) {
			return "azblob://records/x" + query, [][2]string{{"AZURE_STORAGE_KEY", "d3Jvbmc="}}
		},
	}
}

var servers = map[string]func(*testing.T) server{"S3": s3Server, "GCS": gcsServer, "Azure": azureServer}

// each runs a test with every server.
func each(t *testing.T, test func(*testing.T, server)) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// RG-16: the drivers of all object stores share one suite, with that of directories.
func TestBuckets(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		blobtest.RunVersions(t, func(t *testing.T) blob.Versions { return s.must(t) })
	})
}

func TestSealedBuckets(t *testing.T) {
	key, err := blob.NewKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, s server) {
		blobtest.Run(t, func(t *testing.T) blob.Store { return blob.Seal(s.must(t), key) })
	})
}

func TestCheck(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		store := s.must(t)
		if err := store.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v, want that the bucket can be used", err)
		}
		if keys, err := store.List(t.Context(), ""); err != nil || len(keys) > 0 {
			t.Errorf("after the check there is %v, %v, want nothing", keys, err)
		}
		away, err := s.open(t, s.missing)
		if err == nil {
			err = away.Check(t.Context())
		}
		if fault.Reason(err, "") != bucket.ReasonBucket || !strings.Contains(fmt.Sprint(err), "nowhere") || !strings.Contains(fmt.Sprint(err), "--records") {
			t.Errorf("Check() of a bucket that does not exist = %v, want %s, its name and the flag", err, bucket.ReasonBucket)
		}
		for what, err := range map[string]error{
			"Get":    func() error { _, err := away.Get(t.Context(), "a"); return err }(),
			"Delete": away.Delete(t.Context(), "a"),
			"List":   func() error { _, err := away.List(t.Context(), ""); return err }(),
		} {
			if fault.Of(err) != fault.Later {
				t.Errorf("%s of a bucket that does not exist = %v, want neither that a value is missing nor that there is none", what, err)
			}
		}
		if s.wrong == nil {
			return
		}
		url, env := s.wrong()
		if away, err = s.open(t, url, env...); err == nil {
			err = away.Check(t.Context())
		}
		if fault.Reason(err, "") != bucket.ReasonCredentials {
			t.Errorf("Check() with other credentials = %v, want %s", err, bucket.ReasonCredentials)
		}
	})
}

// Large values wait in a file that has no name, and a limit holds.
func TestLargeValues(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		store := s.must(t)
		want := make([]byte, limit)
		if _, err := rand.Read(want); err != nil {
			t.Fatal(err)
		}
		blobtest.Put(t, store, "large", want)
		if got := blobtest.Get(t, store, "large"); !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back as %d others", len(want), len(got))
		}
		err := store.Put(t.Context(), "large", io.MultiReader(bytes.NewReader(want), strings.NewReader("x")))
		if fault.Reason(err, "") != blob.TooLarge {
			t.Errorf("Put() of one byte too many = %v, want %s", err, blob.TooLarge)
		}
	})
}

// Objects that others put below the prefix are no records.
func TestOtherObjects(t *testing.T) {
	s := s3Server(t)
	store := s.must(t)
	blobtest.Put(t, store, "a", []byte("x"))
	place, err := bucket.Parse(strings.Replace(s.url, "{prefix}", "", 1), func(name string) string { return s.environ[name] })
	if err != nil {
		t.Fatal(err)
	}
	prefix := strings.TrimPrefix(store.String(), "s3://records/")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, place.Endpoint.String()+"/records/"+prefix+"/.hidden", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("putting an object: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if keys, err := store.List(t.Context(), ""); err != nil || !slices.Equal(keys, []string{"a"}) {
		t.Errorf("List() = %v, %v, want the record alone", keys, err)
	}
}

// flaky answers some requests itself.
type flaky struct {
	mu     sync.Mutex
	answer []func(w http.ResponseWriter)
	behind http.Handler
	seen   int
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen++
	var answer func(http.ResponseWriter)
	if len(f.answer) > 0 {
		answer, f.answer = f.answer[0], f.answer[1:]
	}
	f.mu.Unlock()
	if answer != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w)
		return
	}
	f.behind.ServeHTTP(w, r)
}

// flakyStore is a bucket of S3 behind a flaky server.
func flakyStore(t *testing.T, answer ...func(http.ResponseWriter)) (*bucket.Store, *flaky) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("records"); err != nil {
		t.Fatal(err)
	}
	f := &flaky{behind: gofakes3.New(backend).Server(), answer: answer}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	at := server{environ: map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}}
	store, err := at.open(t, "s3://records/x?region=eu-west-1&path-style=true&endpoint="+url.QueryEscape(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	return store, f
}

// s3Answer is an error as S3 writes it.
func s3Answer(status int, code, more string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>It is so.</Message>%s<RequestId>1</RequestId></Error>`, code, more)
	}
}

func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// What may pass is tried again, with the whole value, and what may not is told at once.
func TestRequestsAreRepeated(t *testing.T) {
	value := bytes.Repeat([]byte("x"), 2<<20)
	store, f := flakyStore(t, s3Answer(503, "SlowDown", ""), s3Answer(500, "InternalError", ""), drop)
	blobtest.Put(t, store, "a", value)
	if got := blobtest.Get(t, store, "a"); !bytes.Equal(got, value) {
		t.Errorf("%d bytes came back, want all of them", len(got))
	}
	if f.seen != 5 {
		t.Errorf("the server saw %d requests, want three failures, a write and a read", f.seen)
	}
	down := slices.Repeat([]func(http.ResponseWriter){s3Answer(503, "SlowDown", "")}, 4)
	store, f = flakyStore(t, down...)
	if err := store.Put(t.Context(), "a", strings.NewReader("x")); fault.Of(err) != fault.Later || f.seen != 4 {
		t.Errorf("Put() = %v after %d requests, want to wait after four", err, f.seen)
	}
	store, f = flakyStore(t, s3Answer(503, "SlowDown", ""))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Put(ctx, "a", strings.NewReader("x")); !errors.Is(err, context.Canceled) || f.seen != 0 {
		t.Errorf("Put() = %v after %d requests, want that of the context", err, f.seen)
	}
}

// Each failure names what is wrong, and how to fix it.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		reason string
		says   []string
	}{
		"denied":       {s3Answer(403, "AccessDenied", ""), bucket.ReasonDenied, []string{"s3://records/x", "s3:PutObject"}},
		"unknown key":  {s3Answer(403, "InvalidAccessKeyId", ""), bucket.ReasonCredentials, []string{"AWS_ACCESS_KEY_ID"}},
		"wrong secret": {s3Answer(403, "SignatureDoesNotMatch", ""), bucket.ReasonCredentials, []string{"AWS_ACCESS_KEY_ID"}},
		"expired":      {s3Answer(400, "ExpiredToken", ""), bucket.ReasonCredentials, []string{"IRSA"}},
		"region":       {s3Answer(400, "AuthorizationHeaderMalformed", "<Region>us-west-2</Region>"), bucket.ReasonRegion, []string{"eu-west-1", "us-west-2", "region="}},
		"endpoint":     {s3Answer(301, "PermanentRedirect", "<Endpoint>records.s3-us-west-2.amazonaws.com</Endpoint>"), bucket.ReasonRegion, []string{"eu-west-1", "region="}},
		"clock":        {s3Answer(403, "RequestTimeTooSkewed", ""), bucket.ReasonClock, []string{"clock", "NTP"}},
		"no bucket":    {s3Answer(404, "NoSuchBucket", ""), bucket.ReasonBucket, []string{"records", "create it"}},
		"unknowing":    {s3Answer(501, "NotImplemented", ""), bucket.ReasonUnreachable, []string{"endpoint="}},
		"proxy":        {func(w http.ResponseWriter) { http.Error(w, strings.Repeat("<p>no</p>", 1000), http.StatusTeapot) }, bucket.ReasonUnreachable, []string{"endpoint="}},
	} {
		t.Run(name, func(t *testing.T) {
			store, f := flakyStore(t, tt.answer)
			err := store.Check(t.Context())
			if fault.Reason(err, "") != tt.reason || f.seen != 1 {
				t.Errorf("Check() = %v (%s) after %d requests, want %s after one", err, fault.Reason(err, ""), f.seen, tt.reason)
			}
			text := fmt.Sprint(err)
			for _, want := range append(tt.says, "--records s3://records/x") {
				if !strings.Contains(text, want) {
					t.Errorf("Check() = %s, want it to say %q", text, want)
				}
			}
			if len(text) > 1500 {
				t.Errorf("the error has %d bytes", len(text))
			}
		})
	}
}

// The places that are not there, or not to be reached.
func TestEndpoints(t *testing.T) {
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	s := server{environ: map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}}
	for name, tt := range map[string]struct {
		endpoint, says string
	}{
		"an unknown authority": {tls.URL, "ca-file="},
		"nobody listens":       {"http://127.0.0.1:1", "check the network"},
		"an unknown host":      {"https://bucket.invalid", "there is no host bucket.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := s.open(t, "s3://records/x?path-style=true&endpoint="+url.QueryEscape(tt.endpoint))
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Check(t.Context()); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Check() = %v, want it to say %q", err, tt.says)
			}
		})
	}
}

// A 404 that comes from a proxy in front of a bucket says nothing about an object.
func TestNotFoundByAProxy(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"text": func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) },
		"a page": func(w http.ResponseWriter) {
			http.Error(w, "<html><body>default backend</body></html>", http.StatusNotFound)
		},
		"no content": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, f := flakyStore(t)
			blobtest.Put(t, store, "a", []byte("x"))
			f.answer = slices.Repeat([]func(http.ResponseWriter){answer}, 12)
			if _, err := store.Get(t.Context(), "a"); fault.Of(err) != fault.Later || fault.Reason(err, "") != bucket.ReasonUnreachable {
				t.Errorf("Get() = %v, want %s", err, bucket.ReasonUnreachable)
			}
			if err := store.Delete(t.Context(), "a"); fault.Of(err) != fault.Later {
				t.Errorf("Delete() = %v, want that it failed", err)
			}
			if keys, err := store.List(t.Context(), ""); fault.Of(err) != fault.Later {
				t.Errorf("List() = %v, %v, want that it failed", keys, err)
			}
			if got := blobtest.Get(t, store, "a"); string(got) != "x" {
				t.Errorf("after it the value is %q", got)
			}
		})
	}
}

package storage

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// S3 is gofakes3, with the parts of a bucket that it does not know: they are stored as they
// are sent. It says where buckets are, as S3 does.
type S3 struct {
	URL string
	Writes

	handler http.Handler
	mu      sync.Mutex
	held    map[string]*Held
	denied  string            // a path
	regions map[string]string // of buckets
	parts   map[string][]byte // by bucket?part
}

// NewS3 starts a server for one test.
func NewS3(tb testing.TB) *S3 {
	s := &S3{handler: gofakes3.New(s3mem.New()).Server(), held: map[string]*Held{}, regions: map[string]string{}, parts: map[string][]byte{}}
	at := httptest.NewServer(s)
	tb.Cleanup(at.Close)
	s.URL = at.URL
	return s
}

// Region is where a bucket is; empty if there is none.
func (s *S3) Region(bucket string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.regions[bucket]
}

// Part is a part of a bucket, such as encryption, as it was sent.
func (s *S3) Part(bucket, part string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.parts[bucket+"?"+part])
}

// Object is the content of BUCKET/KEY; nil if there is none.
func (s *S3) Object(tb testing.TB, path string) []byte {
	tb.Helper()
	status, body := s.ask(tb, http.MethodGet, path, nil)
	if status != http.StatusOK {
		return nil
	}
	return body
}

// Put stores an object, or makes a bucket.
func (s *S3) Put(tb testing.TB, path string, content []byte) {
	tb.Helper()
	if status, body := s.ask(tb, http.MethodPut, path, content); status != http.StatusOK {
		tb.Fatalf("storing %s: %d: %s", path, status, body)
	}
}

// Delete removes an object, or a bucket that is empty.
func (s *S3) Delete(tb testing.TB, path string) {
	tb.Helper()
	if status, body := s.ask(tb, http.MethodDelete, path, nil); status >= http.StatusBadRequest {
		tb.Fatalf("removing %s: %d: %s", path, status, body)
	}
}

func (s *S3) ask(tb testing.TB, method, path string, content []byte) (int, []byte) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, s.URL+"/"+path, bytes.NewReader(content))
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, body
}

// Lose removes all buckets, with what they hold.
func (s *S3) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = gofakes3.New(s3mem.New()).Server()
	clear(s.regions)
	clear(s.parts)
}

// Held is a request that waits.
type Held struct {
	Arrived chan struct{} // closed once it came
	release chan struct{}
}

// Release lets the request go on.
func (h *Held) Release() { close(h.release) }

// Hold lets the next request with this method and address wait, such as PUT /store.
func (s *S3) Hold(request string) *Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &Held{make(chan struct{}), make(chan struct{})}
	s.held[request] = h
	return h
}

// Deny refuses all requests for a path from now on.
func (s *S3) Deny(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = path
}

// wait waits if a request is to wait.
func (s *S3) wait(r *http.Request) {
	request := r.Method + " " + about(r)
	s.mu.Lock()
	h := s.held[request]
	delete(s.held, request)
	s.mu.Unlock()
	if h != nil {
		close(h.Arrived)
		select {
		case <-h.release:
		case <-r.Context().Done():
		}
	}
}

// about is what a request is about.
func about(r *http.Request) string {
	return strings.TrimSuffix(r.URL.Path+"?"+strings.TrimSuffix(r.URL.RawQuery, "="), "?")
}

// ServeHTTP implements http.Handler.
func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.wait(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path == s.denied {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	s.add(r, about(r))
	bucket, object, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	part := bucket + "?" + strings.TrimSuffix(r.URL.RawQuery, "=")
	switch {
	case object != "":
	case strings.HasSuffix(part, "?encryption"), strings.HasSuffix(part, "?publicAccessBlock"):
		if r.Method == http.MethodPut {
			s.parts[part] = body
		} else if document, ok := s.parts[part]; ok {
			_, _ = w.Write(document)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		return
	case r.Method == http.MethodPut && r.URL.RawQuery == "":
		s.regions[bucket] = "us-east-1"
		if _, after, ok := strings.Cut(string(body), "<LocationConstraint>"); ok {
			s.regions[bucket], _, _ = strings.Cut(after, "<")
		}
		body = nil
	case r.Method == http.MethodDelete && r.URL.RawQuery == "":
		defer s.forget(bucket)
	case r.Method == http.MethodHead && s.regions[bucket] != "":
		w.Header().Set("X-Amz-Bucket-Region", s.regions[bucket])
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	s.handler.ServeHTTP(w, r)
}

// forget drops what is kept of a bucket that is gone.
func (s *S3) forget(bucket string) {
	there := httptest.NewRecorder()
	s.handler.ServeHTTP(there, httptest.NewRequest(http.MethodHead, "/"+bucket, nil))
	if there.Code == http.StatusNotFound {
		delete(s.regions, bucket)
		delete(s.parts, bucket+"?encryption")
		delete(s.parts, bucket+"?publicAccessBlock")
	}
}

// Package storage starts servers of object stores for tests, and a table for locks: S3 and
// DynamoDB in the process of the test, Google Cloud Storage and Azure as programs that make
// has built. They keep what they are sent, and tell what was written.
//
// It is for tests only, and checks no credentials. Start reading at NewS3.
package storage

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// Writes are the requests to a server that changed something.
type Writes struct {
	mu   sync.Mutex
	list []string
}

func (w *Writes) add(r *http.Request, what string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = append(w.list, r.Method+" "+what)
	}
}

// Take returns the writes since the last call: each the method and what it is about.
func (w *Writes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// Start starts a program that listens at a port of this machine, and waits until it answers
// at the path ready. It returns the address of the program.
func Start(tb testing.TB, ready, program string, args func(port string) []string) string {
	tb.Helper()
	at := port.Address(tb)
	address := "http://" + at
	_, number, _ := strings.Cut(at, ":")
	cmd := exec.Command(program, args(number)...) // until after the last cleanup of the test
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Dir = tb.TempDir()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		resp, err := http.Get(address + ready)
		if err == nil {
			_ = resp.Body.Close()
			return address
		}
		select {
		case err := <-ended:
			ended <- err
			tb.Fatalf("%s ended: %v; it said: %s", program, err, said.String())
		case <-tb.Context().Done():
			tb.Fatal(tb.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Watched is a server behind a proxy that notes writes.
type Watched struct {
	URL string
	Writes
}

// Watch puts a proxy before a server. change may answer a request itself; it may be nil.
func Watch(tb testing.TB, address string, change func(w http.ResponseWriter, r *http.Request) (answered bool)) *Watched {
	tb.Helper()
	to, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Watched{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.add(r, r.URL.Path)
		if change == nil || !change(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	tb.Cleanup(at.Close)
	s.URL = at.URL
	return s
}

// GCS starts a server of Google Cloud Storage, which is program. The server forgets the
// properties of a bucket, so the proxy before it keeps them.
func GCS(tb testing.TB, program string) *Watched {
	tb.Helper()
	var mu sync.Mutex
	buckets := map[string][]byte{} // as they were made
	return Watch(tb, StartGCS(tb, program), func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		path, name, _ := strings.Cut(r.URL.Path, "/storage/v1/b")
		name = strings.TrimPrefix(name, "/")
		switch {
		case !strings.HasPrefix(r.URL.Path, "/storage/") && !strings.HasPrefix(r.URL.Path, "/upload/"):
			r.Host = "storage.googleapis.com" // where the server serves objects by their names alone
		case path != "":
		case r.Method == http.MethodPost && name == "":
			body, _ := io.ReadAll(r.Body) // what is missing, the server refuses
			r.Body = io.NopCloser(bytes.NewReader(body))
			if _, rest, ok := strings.Cut(string(body), `"name":"`); ok {
				made, _, _ := strings.Cut(rest, `"`)
				buckets[made] = body
			}
		case r.Method == http.MethodDelete:
			delete(buckets, name)
		case r.Method == http.MethodGet && buckets[name] != nil:
			_, _ = w.Write(buckets[name])
			return true
		}
		return false
	})
}

// StartGCS starts the server alone, and returns its address.
func StartGCS(tb testing.TB, program string) string {
	tb.Helper()
	return Start(tb, "/storage/v1/b", program, func(port string) []string {
		return []string{"-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory", "-log-level", "error"}
	})
}

// The account of every server that StartAzure starts.
const (
	AzureAccount = "devstoreaccount1"
	AzureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// StartAzure starts a server of Azure Blob Storage, which is program, and returns its
// address.
func StartAzure(tb testing.TB, program string) string {
	tb.Helper()
	return Start(tb, "/", program, func(port string) []string {
		return []string{"--blobPort", port, "--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"}
	})
}

package protocol_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/rights"
)

// slow is the connection of a client that takes an hour for each part of a body.
type slow struct {
	*httptest.ResponseRecorder
	now         time.Time
	write, read time.Time
	late        bool
	parts       int
}

func (s *slow) SetWriteDeadline(t time.Time) error { s.write = t; return nil }
func (s *slow) SetReadDeadline(t time.Time) error  { s.read = t; return nil }

func (s *slow) Write(p []byte) (int, error) {
	s.late = s.late || s.write.Before(s.now)
	s.now = s.now.Add(time.Hour)
	s.parts++
	return s.ResponseRecorder.Write(p)
}

// trickle is a body of which a part comes each hour.
type trickle struct {
	*slow
	from io.Reader
}

func (r trickle) Read(p []byte) (int, error) {
	r.late = r.late || r.read.Before(r.now)
	r.now = r.now.Add(time.Hour)
	r.parts++
	return r.from.Read(p[:min(len(p), 16<<10)])
}

// anyone may do everything.
type anyone struct{}

func (anyone) Caller(*http.Request) (protocol.Caller, error) {
	return protocol.Caller{Name: "ann"}, nil
}
func (anyone) May(context.Context, protocol.Caller, protocol.Verb, string) error {
	return nil
}

// RG-22: a transfer that makes progress is not cut off, however long it takes.
func TestSlowClients(t *testing.T) {
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := &slow{now: time.Unix(1_000_000, 0)}
	clock := func() time.Time { return client.now }
	r := registry.New(store, registry.Options{Scratch: t.TempDir()})
	h, err := protocol.New(protocol.Options{Registry: r, Rights: anyone{}, Signer: rights.NewSigner(rights.NewKey(), clock), Life: 1000 * time.Hour, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	content := tarGz(t, map[string]string{"main.tf": "# " + string(noise(1<<20))})
	ask := func(method, path string, body io.Reader, want int) *httptest.ResponseRecorder {
		t.Helper()
		client.ResponseRecorder, client.late, client.parts = httptest.NewRecorder(), false, 0
		h.ServeHTTP(client, httptest.NewRequestWithContext(t.Context(), method, path, body))
		if client.Code != want || client.late {
			t.Fatalf("%s %s has the status %d, want %d: %s, cut off: %v", method, path, client.Code, want, client.Body, client.late)
		}
		return client.ResponseRecorder
	}
	ask("PUT", "/v1/modules/team/vpc/aws/1.0.0", trickle{client, bytes.NewReader(content)}, http.StatusCreated)
	if client.parts < 20 {
		t.Errorf("the upload came in %d parts, want many", client.parts)
	}
	const from = "/v1/modules/team/vpc/aws/1.0.0/download"
	location := ask("GET", from, nil, http.StatusOK).Header().Get("X-Terraform-Get")
	u, err := httptest.NewRequest("GET", from, nil).URL.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	got := ask("GET", u.RequestURI(), nil, http.StatusOK)
	if !bytes.Equal(got.Body.Bytes(), content) || client.parts < 20 {
		t.Errorf("the download has %d bytes in %d parts, want %d bytes in many", got.Body.Len(), client.parts, len(content))
	}
}

// The limit of a server on the time of an answer does not hold: this one would have no
// time for any.
func TestServersWithATimeLimit(t *testing.T) {
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := registry.New(store, registry.Options{Scratch: t.TempDir()})
	h, err := protocol.New(protocol.Options{Registry: r, Rights: anyone{}, Signer: rights.NewSigner(rights.NewKey(), time.Now)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.WriteTimeout = time.Nanosecond
	server.Start()
	t.Cleanup(server.Close)
	s := &service{URL: server.URL, Client: server.Client()}
	content := tarGz(t, map[string]string{"main.tf": "# " + string(noise(4<<20))})
	s.push(t, "team/vpc/aws", "1.0.0", content)
	a := s.ask(t, "GET", "/v1/modules/team/vpc/aws/1.0.0/download", "", nil)
	u, err := a.Request.URL.Parse(a.Header.Get("X-Terraform-Get"))
	if err != nil {
		t.Fatal(err)
	}
	if a := s.ask(t, "GET", u.RequestURI(), "", nil); a.body != string(content) {
		t.Errorf("the download has %d bytes, want %d", len(a.body), len(content))
	}
}

// noise is text that does not shrink.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = 'a' + byte(x%26)
	}
	return b
}

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
)

// A client that sends any number of tokens which the cluster does not know is told to come again, and
// neither another address nor the user of a token that was accepted notices.
func TestAFloodOfTokensIsOfOneAddress(t *testing.T) {
	h, err := New(options(access.NewBoundedAuth(newRoles(), time.Now)))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(from, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1/api/v1/version", nil)
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const flooded, other = "192.0.2.1:1", "192.0.2.2:1"
	if w := ask(flooded, token); w.Code != http.StatusOK {
		t.Fatalf("with a good token: %d %s", w.Code, w.Body)
	}
	for n := 0; ; n++ {
		w := ask(fmt.Sprintf("192.0.2.1:%d", n), fmt.Sprint("unknown", n))
		if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "" {
			break
		}
		if w.Code != http.StatusUnauthorized || n == 10000 {
			t.Fatalf("after %d unknown tokens: %d %s, want it unauthorized, or told to come again", n, w.Code, w.Body)
		}
	}
	if w := ask(other, "unknown"); w.Code != http.StatusUnauthorized {
		t.Errorf("from another address: %d %s", w.Code, w.Body)
	}
	if w := ask(flooded, token); w.Code != http.StatusOK {
		t.Errorf("with a token that was accepted before: %d %s", w.Code, w.Body)
	}
}

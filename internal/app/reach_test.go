package app

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// F19, F20: a server that takes requests and answers none blocks no caller, neither
// before its answer nor in the middle of it. A watch waits as long as it wants.
func TestRequestsToTheAPIServerEnd(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/half") {
			_, _ = io.WriteString(w, "half an ")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	c := &rest.Config{Host: server.URL}
	bound(c, 50*time.Millisecond)
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	for path, ends := range map[string]bool{"/no": true, "/half": true, "/half?watch=0": true, "/half?watch=true": false} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			patience := time.Minute
			if !ends {
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(r)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if err == nil {
				t.Fatal("it was answered")
			}
			if ended := ctx.Err() == nil; ended != ends {
				t.Errorf("it ended by itself: %v, with %v; want %v", ended, err, ends)
			}
		})
	}
}

package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A kubelet learns that a controller that waits lives, and does not serve.
func TestHealth(t *testing.T) {
	broken := errors.New("the API server is away")
	for name, tt := range map[string]struct {
		ready func(context.Context) error
		want  map[string]int
	}{
		"waiting for the Lease":  {nil, map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable}},
		"serving":                {func(context.Context) error { return nil }, map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK}},
		"without the API server": {func(context.Context) error { return broken }, map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable}},
		"what else there is":     {nil, map[string]int{"/": http.StatusNotFound, "/metrics": http.StatusNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			var h health
			if tt.ready != nil {
				h.ready.Store(&tt.ready)
			}
			for path, want := range tt.want {
				w := httptest.NewRecorder()
				h.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
				if w.Code != want {
					t.Errorf("%s answers %d, want %d", path, w.Code, want)
				}
			}
		})
	}
}

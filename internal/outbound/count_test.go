package outbound

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tally records what a client counts.
type tally struct {
	mu   sync.Mutex
	seen []string
}

func (c *tally) count(status int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, fmt.Sprint(status, " ", bytes))
}

// Each answer is counted once, with what was read of it.
func TestAnswersAreCounted(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		io.WriteString(w, strings.Repeat("x", 60))
	})
	for name, c := range map[string]struct {
		path string
		most int64
		want string
	}{
		"read":        {"/", 100, "200 60"},
		"an error":    {"/gone", 100, "410 0"},
		"too large":   {"/", 10, "200 0"},
		"none at all": {"nowhere", 100, "0 0"},
	} {
		var counted tally
		h := client(t, Policy{Allow: allow(t, "127.0.0.0/8"), Count: counted.count}, Options{MaxBytes: c.most})
		target := s.URL + c.path
		if c.path == "nowhere" {
			target = "http://127.0.0.1:1/"
		}
		_, _ = get(h, target) // what comes of it is other tests' business
		if !slices.Equal(counted.seen, []string{c.want}) {
			t.Errorf("%s: it counts %q, want %q", name, counted.seen, c.want)
		}
	}

	t.Run("once, however often its body is closed", func(t *testing.T) {
		var counted tally
		h := client(t, Policy{Allow: allow(t, "127.0.0.0/8"), Count: counted.count}, Options{})
		resp, err := h.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		resp.Body.Close()
		if len(counted.seen) != 1 {
			t.Errorf("it counts %q", counted.seen)
		}
	})
}

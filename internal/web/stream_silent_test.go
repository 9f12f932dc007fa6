package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// deadlines is an answer that notes until when it might be written to.
type deadlines struct {
	*httptest.ResponseRecorder
	set     time.Time
	written []time.Time // what held while something was written
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = t
	return nil
}

func (d *deadlines) Write(b []byte) (int, error) {
	d.written = append(d.written, d.set)
	return d.ResponseRecorder.Write(b)
}

// Over HTTP/2 a deadline ends a stream when it passes, whether or not something
// is written. A run may be silent for far longer than a reader may take nothing.
func TestStreamThatIsSilentGoesOn(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &opener{streams: &streams{total: 1, each: 1}, limits: Limits{}.filled(), now: func() time.Time { return now }}
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	c, _ := gin.CreateTestContext(w)
	c.Request = httptest.NewRequestWithContext(t.Context(), http.MethodGet, logPath, nil)
	st, done, err := s.open(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := st.write([]byte("Initializing modules...\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := w.written, now.Add(s.limits.Stall); len(got) != 1 || !got[0].Equal(want) {
		t.Errorf("a reader may take nothing until %v, want %v", got, want)
	}
	if got, want := w.set, now.Add(s.limits.Stream); !got.Equal(want) {
		t.Errorf("a stream that is silent ends at %v, want %v", got, want)
	}
}

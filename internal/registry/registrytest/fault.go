package registrytest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
)

// Fault answers a request in place of next, or changes the answer of next.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Fail applies a fault to each request for a path that contains part. The fault that
// was added last wins.
func (u *Upstream) Fail(part string, f Fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults = append([]fault{{part, f}}, u.faults...)
}

// Heal removes all faults.
func (u *Upstream) Heal() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults = nil
}

// Status answers with a status, and with a page for its body.
func Status(code int) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>"+http.StatusText(code)+"</html>")
	}
}

// Hang answers nothing until the client leaves.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// Drip sends the first byte of the answer, and nothing more until the client leaves.
func Drip(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body := answered(r, next)
	copied(w, body)
	_, _ = w.Write(body.Body.Bytes()[:1])
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// CutOff closes the connection in the middle of the answer.
func CutOff(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body := answered(r, next)
	copied(w, body)
	_, _ = w.Write(body.Body.Bytes()[:body.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Changed sends the answer with its last byte changed.
func Changed(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body := answered(r, next)
	data := bytes.Clone(body.Body.Bytes())
	data[len(data)-1] ^= 1
	copied(w, body)
	_, _ = w.Write(data)
}

// Short sends half of the answer as if it were all of it.
func Short(w http.ResponseWriter, r *http.Request, next http.Handler) {
	_, _ = w.Write(answered(r, next).Body.Bytes()[:10])
}

// Loop redirects for ever.
func Loop(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	http.Redirect(w, r, r.URL.Path+"?n="+strconv.Itoa(n+1), http.StatusFound)
}

// Gate says on arrived that a request is there, and answers it once open is closed.
func Gate(arrived chan<- struct{}, open <-chan struct{}) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case arrived <- struct{}{}:
		case <-open:
		case <-r.Context().Done():
		}
		select {
		case <-open:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}

func answered(r *http.Request, next http.Handler) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	next.ServeHTTP(recorder, r)
	return recorder
}

// copied sends the headers of an answer with the length of its whole body.
func copied(w http.ResponseWriter, from *httptest.ResponseRecorder) {
	w.Header().Set("Content-Type", from.Header().Get("Content-Type"))
	w.Header().Set("Content-Length", strconv.Itoa(from.Body.Len()))
	w.WriteHeader(from.Code)
}

package protocol

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// transfer moves the deadlines of a connection with the progress of a body, in place of
// the fixed ones of the server: a slow client gets all of a large archive, and one that
// stalls is cut off.
type transfer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	now     func() time.Time
}

// Transfer lifts the limits of the server for a request, and cuts it off where the client
// takes longer than stall for a part of a body. Between the parts there is no limit for
// the answer: verifying a large upload takes its time.
func Transfer(w http.ResponseWriter, r *http.Request, stall time.Duration, now func() time.Time) http.ResponseWriter {
	t := &transfer{w, http.NewResponseController(w), stall, now}
	// A writer without deadlines, as of a test, has none to lift.
	_ = t.control.SetWriteDeadline(time.Time{})
	r.Body = &received{r.Body, t}
	return t
}

func (t *transfer) Write(p []byte) (int, error) {
	_ = t.control.SetWriteDeadline(t.now().Add(t.stall))
	return t.ResponseWriter.Write(p)
}

func (t *transfer) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// received is the body of a request.
type received struct {
	io.ReadCloser
	t *transfer
}

func (r *received) Read(p []byte) (int, error) {
	_ = r.t.control.SetReadDeadline(r.t.now().Add(r.t.stall))
	n, err := r.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		// The server watches for the end of the connection. After any other error it waits for
		// the rest of the body before it sends the answer, and the deadline ends that.
		_ = r.t.control.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fault.New(fault.Later, bodyStalled, fmt.Errorf("the client sent nothing for %v, so the request was ended: send it again: %w", r.t.stall, err))
	}
	return n, err
}

// bodyStalled is the reason of an error that has the status 408.
const bodyStalled = "BodyStalled"

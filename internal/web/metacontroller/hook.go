package metacontroller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plural"
)

// Paths are where the hooks answer.
const (
	SyncPath      = "/sync"
	FinalizePath  = "/finalize"
	CustomizePath = "/customize"
)

// Bounds of one request, and of all.
const (
	MaxBody  = 8 << 20                // metacontroller sends the object with all of its children
	Within   = 900 * time.Millisecond // the answer is there in a second, from the first check of the request on
	inFlight = 32                     // each may hold MaxBody
)

const (
	whileRunning = 15 // seconds until metacontroller asks again
	unseen       = 2  // seconds until an object is asked for again that Terrier has not seen yet
	overloaded   = 5
)

// Observed is an object of a stack as the API server has it now.
type Observed struct {
	UID        string
	Generation int64
	Status     json.RawMessage // as the object has it; empty if it has none
	Seen       bool            // the status is of the present generation
	Deleting   bool
	Held       bool // Terrier's finalizer is on it, which goes after the destroy has succeeded
	Running    bool // a run goes on, or is about to
}

// Objects reads objects of stacks. One that does not exist is Missing, and a kind that is
// no stack is Invalid.
type Objects func(context.Context, Key) (Observed, error)

// Handler answers the hooks. The server checks authentication and permission, and ends the
// request after Within.
type Handler struct {
	objects Objects
	log     *slog.Logger
	slots   chan struct{}
}

// NewHandler returns a Handler that reads through objects.
func NewHandler(objects Objects, log *slog.Logger) *Handler {
	return &Handler{objects: objects, log: log, slots: make(chan struct{}, inFlight)}
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		later(w, overloaded, "Terrier answers as many hooks as it can")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		unread(w, err)
		return
	}
	if r.URL.Path == CustomizePath {
		send(w, r, customizeReply{RelatedResources: []struct{}{}})
		return
	}
	req, err := parse(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	req.finalizing = req.finalizing || r.URL.Path == FinalizePath
	h.answer(w, r, req)
}

// answer says what there is of one object.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, req request) {
	o, err := h.objects(r.Context(), req.Key)
	kind := fault.Of(err)
	gone := kind == fault.Missing || kind == fault.None && o.UID != req.UID
	switch {
	case gone && req.finalizing:
		o = Observed{} // what was deleted holds nothing
	case gone:
		later(w, unseen, fmt.Sprintf("%s %s/%s of this UID does not exist, or not yet", req.Kind, req.Namespace, req.Name))
		return
	case kind == fault.Invalid:
		refuse(w, http.StatusUnprocessableEntity, err)
		return
	case kind != fault.None:
		h.log.Warn("hook of metacontroller not answered", "stack", req.Namespace+"/"+req.Name, "err", err)
		later(w, overloaded, "the API server does not answer")
		return
	case req.composite && (!o.Seen || o.Generation != req.generation) && !(req.finalizing && !o.Held):
		// A composite adds the generation that it has to the status of the answer: it
		// would say that Terrier has seen that generation, and no other.
		later(w, unseen, "Terrier, or metacontroller, has not seen this generation of the object yet")
		return
	}
	resync := 0.0
	if o.Running || o.Deleting && o.Held {
		resync = whileRunning
	}
	finalized := req.finalizing && !(o.Deleting && o.Held)
	if !req.composite {
		send(w, r, decoratorReply{Attachments: []struct{}{}, ResyncAfterSeconds: resync, Finalized: finalized})
		return
	}
	status := o.Status
	if len(status) == 0 {
		status = json.RawMessage(`{}`)
	}
	send(w, r, compositeReply{Status: status, Children: []struct{}{}, ResyncAfterSeconds: resync, Finalized: finalized})
}

// send sends a reply with its hash, or says that it is the one that the caller has.
func send(w http.ResponseWriter, r *http.Request, reply any) {
	text, err := json.Marshal(reply)
	if err != nil {
		refuse(w, http.StatusInternalServerError, errors.New("internal error of the server"))
		return
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	for have := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimSpace(have) == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the caller has gone
}

// unread answers a request whose body could not be read.
func unread(w http.ResponseWriter, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		later(w, overloaded, "the request did not arrive within a second")
		return
	}
	status := http.StatusBadRequest
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		status = http.StatusRequestEntityTooLarge
	}
	refuse(w, status, fmt.Errorf("reading the request: %w", err))
}

// later has the caller come again.
func later(w http.ResponseWriter, seconds int, why string) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	refuse(w, http.StatusTooManyRequests, errors.New(why+": try again in "+plural.Count(seconds, "second")))
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // the caller has gone
}

package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
)

// server is the side of a Runner that agents see.
type server struct{ *Runner }

// route is one thing that an agent asks for.
type route struct {
	method, path string
	first        bool  // asked before the agent has its proof
	body         int64 // bytes, at most
	serve        func(w http.ResponseWriter, req *http.Request, run *placedRun) error
	between      func(w http.ResponseWriter, req *http.Request, p Place) error // instead of serve, for a place that may have no run
}

// routes are all that an agent can ask for.
func (r *server) routes() []route {
	return []route{
		{method: http.MethodPost, path: wire.Order, first: true, serve: orders{r}.serveOrder},
		{method: http.MethodPost, path: wire.Next, between: orders{r}.serveNext},
		{method: http.MethodGet, path: wire.Archive, serve: r.serveArchive},
		{method: http.MethodGet, path: wire.Prepared, serve: r.servePrepared},
		{method: http.MethodPatch, path: wire.File + "{name}", body: wire.MaxAppend, serve: r.appendFile},
		{method: http.MethodPut, path: wire.File + "{name}", body: maxFile, serve: r.replaceFile},
		{method: http.MethodPut, path: wire.Report, body: wire.MaxReport, serve: r.takeReport},
		{method: http.MethodGet, path: wire.AskWish, serve: r.serveWish},
		{method: http.MethodGet, path: wire.Registry + "/{path...}", serve: r.serveRegistry},
		{method: http.MethodPost, path: wire.Identity + identity.PathTokens, serve: tokens{r}.serveIdentity},
	}
}

// Handler serves agents, below wire.Prefix. It authenticates every request by itself,
// and bounds it. A process that may own none of the runs must not serve it: an agent
// takes the answer that its run is not known as the end of the run.
func (r *Runner) Handler() http.Handler {
	s := &server{r}
	mux := http.NewServeMux()
	for _, t := range s.routes() {
		mux.HandleFunc(t.method+" "+t.path, func(w http.ResponseWriter, req *http.Request) {
			req.Body = http.MaxBytesReader(w, req.Body, t.body)
			if err := s.answer(w, req, t); err != nil {
				s.refuse(w, req, err)
			}
		})
	}
	return mux
}

// refusal is an error with its status.
type refusal struct {
	status int
	err    error
	held   wire.Held
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

func refused(status int, format string, args ...any) error {
	return &refusal{status: status, err: fmt.Errorf(format, args...)}
}

// errUnknown answers the agent of a run that is not known, that was forgotten, and that
// has ended: the three have the same end.
func errUnknown() error {
	return refused(http.StatusGone, "the controller knows no such run that goes on")
}

// refuse answers with an error.
func (r *server) refuse(w http.ResponseWriter, req *http.Request, err error) {
	answer, status := wire.Refusal{Error: err.Error()}, http.StatusInternalServerError
	if e, ok := errors.AsType[*refusal](err); ok {
		status, answer.Held = e.status, e.held
	} else if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	} else if disk.IsNoSpace(err) {
		status = http.StatusInsufficientStorage
	}
	if status >= http.StatusInternalServerError && req.Context().Err() == nil {
		r.config.Log.Warn("agent not served", "path", req.URL.Path, "status", status, "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an agent that is gone asks again
}

// answer serves a request. Nothing but the credential says which run it is about.
func (r *server) answer(w http.ResponseWriter, req *http.Request, t route) error {
	p, err := r.identify(req)
	if err != nil {
		return err
	}
	if t.between != nil {
		return t.between(w, req, p)
	}
	run, err := r.admit(req, p, t.first)
	if err != nil {
		return err
	}
	return t.serve(w, req, run)
}

// identify finds the place that a request comes from.
func (r *server) identify(req *http.Request) (Place, error) {
	if r.ctx.Err() != nil {
		return Place{}, refused(http.StatusServiceUnavailable, "the controller is stopping")
	}
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return Place{}, refused(http.StatusUnauthorized, "the request has no token")
	}
	p, err := r.config.Identify(req.Context(), token)
	if fault.Of(err) == fault.Denied {
		return Place{}, refused(http.StatusUnauthorized, "the token is not accepted")
	}
	if err != nil {
		return Place{}, &refusal{status: http.StatusServiceUnavailable, err: fmt.Errorf("the token cannot be checked now: %w", err)}
	}
	r.made(req.Context(), p.Name)
	return p, nil
}

// standing is what says how things stand with the runs of a key. Each answer is of a moment of
// its own; version has another value after any change of notYet or owns.
type standing interface {
	version() uint64
	notYet(key string) error
	owns(key string) bool
	at(p Place) *placedRun
}

// known finds the run of a place. That there is none ends its agent, and so it is said only if
// all answers are of one moment: while a key is given away, taken, or read again, one answer may
// be from before the change and the next from after it.
func known(r standing, p Place, key string) (*placedRun, error) {
	for {
		version := r.version()
		notYet, owned := r.notYet(key), r.owns(key)
		switch run := r.at(p); {
		case run != nil:
			return run, nil
		case notYet != nil:
			return nil, notYet
		case !owned:
			return nil, errElsewhere()
		case r.version() == version:
			return nil, errUnknown()
		}
	}
}

// lookUp is known, for an agent that says of which stack it is. A place that the launcher does not
// find now may have a run that goes on: its agent asks again, as with another controller.
func lookUp(r *server, req *http.Request, p Place) (*placedRun, error) {
	run, err := known(r, p, req.Header.Get(wire.HeaderStack))
	if told, ok := errors.AsType[*refusal](err); ok && told.status == http.StatusGone && r.config.LeftOut != nil && r.config.LeftOut(p.Namespace) {
		return nil, refused(http.StatusServiceUnavailable, "the controller has no right to the pods in the namespace %s now, and leaves them out", p.Namespace)
	}
	return run, err
}

// admit finds the run of a place, if the request has its proof.
func (r *server) admit(req *http.Request, p Place, first bool) (*placedRun, error) {
	run, err := lookUp(r, req, p)
	if err != nil {
		return nil, err
	}
	run.heard.Store(new(r.config.Now()))
	if !first && !r.signer.proves(req.Header.Get(wire.HeaderProof), run.place, run.key, run.id) {
		return nil, refused(http.StatusForbidden, "the proof is not accepted")
	}
	return run, nil
}

// going reads what is known of a run that goes on. The lock of its key is held.
func (r *server) going(run *placedRun) (rec record, rep runner.Report, err error) {
	if r.of(run.key, run.id) != run {
		return rec, rep, r.unknownNow(run)
	}
	rec, rep, err = r.read(run)
	if err == nil && rep.Phase == runner.Done {
		err = errUnknown()
	}
	return rec, rep, err
}

// orders is the part of a server that gives orders to agents.
type orders struct{ *server }

// serveOrder gives the agent its order. An agent that did not receive all of it asks
// again, until its first report. In a place that had another run before, only the proof of
// that gets the order: see serveNext.
func (r orders) serveOrder(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	if run.before != nil {
		return errUnknown()
	}
	waits, _ := strconv.ParseBool(req.Header.Get(wire.HeaderWaits))
	asks, _ := strconv.ParseBool(req.Header.Get(wire.HeaderNext))
	order, asks, err := r.orderFor(run, waits, asks)
	if err != nil {
		return err
	}
	return r.sendOrder(w, run, order, asks)
}

// sendOrder sends an order with its proof. With asks, the agent may ask for another one after
// that.
func (r orders) sendOrder(w http.ResponseWriter, run *placedRun, order *runner.Order, asks bool) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(wire.HeaderProof, r.signer.proof(run.place, run.key, run.id))
	if asks {
		w.Header().Set(wire.HeaderNext, "true")
	}
	_ = order.Write(w) // an agent that got a part of it asks again
	return nil
}

// orderFor is the order of a run, whose agent may ask for another one after it.
func (r orders) orderFor(run *placedRun, waits, asks bool) (*runner.Order, bool, error) {
	defer r.Lock(run.key)()
	rec, _, err := r.going(run)
	if err != nil {
		return nil, false, err
	}
	if run.order == nil {
		return nil, false, errUnknown()
	}
	if !rec.Ordered {
		rec.Ordered, rec.Waits = true, waits
		if err := r.write(run, rec); err != nil {
			return nil, false, err
		}
	}
	run.asks = asks && waits && run.shape != "" && run.runs < r.sharing.most
	return run.order, run.asks, nil
}

// serveArchive gives the agent the archive of the run.
func (r *server) serveArchive(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	f, err := r.openArchive(req, run)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/gzip")
	_, _ = io.Copy(w, f) // an agent that got a part of it asks again
	return nil
}

func (r *server) openArchive(req *http.Request, run *placedRun) (*os.File, error) {
	defer r.Lock(run.key)()
	rec, _, err := r.going(run)
	if err != nil {
		return nil, err
	}
	if rec.Archive == "" {
		return nil, refused(http.StatusUnprocessableEntity, "the run has no archive")
	}
	f, err := os.Open(filepath.Join(r.dir(run), fileArchive))
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	// The directory is a new one.
	path, err := r.config.Contents.Archive(req.Context(), rec.Archive)
	if err != nil {
		return nil, &refusal{status: http.StatusServiceUnavailable, err: fmt.Errorf("finding the archive %s: %w", rec.Archive, err)}
	}
	return os.Open(path)
}

// wishLasts is how long an agent waits for a wish.
const wishLasts = 25 * time.Second

// serveWish tells the agent what is wanted of the run, once that differs from what the
// agent knows. After its end the run is only to be forgotten.
func (r *server) serveWish(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	q := req.URL.Query()
	cancel, _ := strconv.ParseBool(q.Get(wire.QueryCancel))
	known := wire.Wish{Cancel: cancel, Report: q.Get(wire.QueryReport)}
	over := time.NewTimer(wishLasts)
	defer over.Stop()
	for last := false; ; {
		wish, changed, err := r.wish(run)
		if err != nil {
			return err
		}
		if wish != known || last {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(wish) // an agent that is gone asks again
			return nil
		}
		select {
		case <-changed:
		case <-over.C:
			last = true
		case <-req.Context().Done():
			last = true
		case <-r.ctx.Done():
			return refused(http.StatusServiceUnavailable, "the controller is stopping")
		}
	}
}

func (r *server) wish(run *placedRun) (wire.Wish, <-chan struct{}, error) {
	defer r.Lock(run.key)()
	if r.of(run.key, run.id) != run {
		return wire.Wish{}, nil, r.unknownNow(run)
	}
	rec, rep, err := r.read(run)
	if err != nil {
		return wire.Wish{}, nil, err
	}
	if rep.Phase == runner.Done && rec.Ended {
		return wire.Wish{}, nil, errUnknown()
	}
	return wire.Wish{Cancel: rec.Cancel, Report: run.taken}, run.changed, nil
}

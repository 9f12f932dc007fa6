package remote

import (
	"net/http"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
)

// Reader is the run that reads from the registry. Its place is known by its credential, and
// no text of a request says anything of it.
type Reader struct {
	Stack     string // the UID of the stack
	Run       string // the ID of the run
	Namespace string // of the stack
}

// serveRegistry answers for the registry of the platform. So a pod reaches it where it
// reaches the controller, and no credential of the registry is in the pod.
func (r *server) serveRegistry(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	if r.config.Registry == nil {
		return refused(http.StatusNotFound, "this platform has no registry")
	}
	if err := r.goesOn(run); err != nil {
		return err
	}
	stack, _ := runner.SplitKey(run.key)
	inner := req.Clone(req.Context())
	inner.URL.Path = strings.TrimPrefix(req.URL.Path, wire.Registry)
	inner.URL.RawPath = strings.TrimPrefix(req.URL.RawPath, wire.Registry)
	inner.RequestURI = inner.URL.RequestURI()
	for _, name := range []string{"Authorization", wire.HeaderProof, wire.HeaderStack} {
		inner.Header.Del(name)
	}
	return r.config.Registry(w, inner, Reader{Stack: stack, Run: run.id, Namespace: run.place.Namespace})
}

// tokens is the part of a server that gives runs their identity.
type tokens struct{ *server }

// serveIdentity gives the supervisor of a run the tokens that its grant names. The credential
// of the place says which run it is, so the grant of another run is worth nothing here, and
// none is after the end of its run.
func (r tokens) serveIdentity(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	if r.config.Tokens == nil {
		return refused(http.StatusNotFound, "this platform gives its runs no identity")
	}
	if err := r.goesOn(run); err != nil {
		return err
	}
	return r.config.Tokens(w, req, Reader{Stack: run.key, Run: run.id, Namespace: run.place.Namespace})
}

// goesOn refuses a run that has ended, and whose place may live a little longer.
func (r *server) goesOn(run *placedRun) error {
	defer r.Lock(run.key)()
	if r.of(run.key, run.id) != run {
		return r.unknownNow(run)
	}
	_, rep, err := r.read(run)
	if err == nil && rep.Phase == runner.Done {
		err = errUnknown()
	}
	return err
}

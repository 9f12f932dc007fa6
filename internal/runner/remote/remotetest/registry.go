package remotetest

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
)

// Registry stands for the registry of the platform in a controller under test.
type Registry struct {
	served atomic.Pointer[served]
}

// Issuer stands for what gives runs their identities in a controller under test.
type Issuer struct {
	served atomic.Pointer[served]
}

// Use makes it that of a handler. It returns what the job of a run has.
func (i *Issuer) Use(h http.Handler) *runner.Identity {
	i.served.Store(&served{handler: h})
	return &runner.Identity{}
}

// Serve is for remote.Config.
func (i *Issuer) Serve(w http.ResponseWriter, q *http.Request, by remote.Reader) error {
	s := i.served.Load()
	switch {
	case s == nil:
		return errors.New("the test has no issuer")
	case by.Stack == "" || by.Run == "" || by.Namespace == "":
		return errors.New("an unknown run asks for tokens")
	}
	s.handler.ServeHTTP(w, q)
	return nil
}

type served struct {
	handler http.Handler
	token   string
}

// Use makes it that of a handler, which knows runs by a token. It returns what the job of
// such a run has.
func (r *Registry) Use(h http.Handler, token string) *runner.Registry {
	r.served.Store(&served{h, token})
	return &runner.Registry{}
}

// Serve is for remote.Config: it adds the token to the request of a run, as a controller does.
func (r *Registry) Serve(w http.ResponseWriter, q *http.Request, by remote.Reader) error {
	s := r.served.Load()
	switch {
	case s == nil:
		return errors.New("the test has no registry")
	case by.Stack == "" || by.Run == "" || by.Namespace == "":
		return errors.New("an unknown run reads")
	}
	q.Header.Set("Authorization", "Bearer "+s.token)
	s.handler.ServeHTTP(w, q)
	return nil
}

package app

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/kube"
)

// exclusive is a control plane that only one of several processes may use.
type exclusive interface {
	Leads() error          // nil while this process is active
	Lost() <-chan struct{} // closed when it is no longer active
}

// keyed is a control plane that several controllers may use, which share keys.
type keyed interface {
	InstallationKeys() *installation.Keys
}

// keys are those of the installation. A control plane in this process needs no others than
// those of its data directory.
func (p plane) keys(dir string, now func() time.Time) (*installation.Keys, error) {
	if k, ok := p.Running.(keyed); ok {
		return k.InstallationKeys(), nil
	}
	return installation.Local(dir, now)
}

// errNotLeading is the error of every action after the Lease was lost.
var errNotLeading = errors.New("this controller lost its Lease, and another controller may be active")

// plane is the control plane as this process uses it.
type plane struct{ Running }

// whileLeading ends ctx, with the reason as its cause, when it is lost.
func (p plane) whileLeading(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l, ok := p.Running.(exclusive)
	if !ok {
		return ctx, func() { cancel(nil) }
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-l.Lost():
			cancel(errNotLeading)
		case <-over:
		}
	}()
	return ctx, func() { close(over); cancel(nil) }
}

// leads is nil while this process is active.
func (p plane) leads() error {
	if l, ok := p.Running.(exclusive); ok {
		return l.Leads()
	}
	return nil
}

// rest is the configuration of all clients of the API server that act for stacks.
func (p plane) rest() *rest.Config {
	c := p.Config()
	bound(c, requestTime)
	kube.CountWrites(c)
	if l, ok := p.Running.(exclusive); ok {
		fence(c, l.Leads) // around the counter: a refused write is not counted
	}
	return c
}

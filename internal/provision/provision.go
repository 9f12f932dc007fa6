// Package provision makes what backends need: buckets, containers, schemas and tables for locks. It
// is linked by terrier-backend alone, which runs in the sandbox of a run with the
// environment of the run. What can be computed of a backend is in package backend.
//
// A place that holds objects is never changed, and one that is gone is not made again once
// a state is expected there. A state belongs to one cluster (owner.go). Start reading at
// Plugins.
package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// Plugins are the backends that Terrier knows.
type Plugins struct {
	Environ func(string) string
	Now     func() time.Time
	Azure   string // a server in place of Azure's; empty outside of tests
}

// Find returns the backend of a name.
func (p Plugins) Find(name string) (backend.Plugin, bool) {
	b, ok := backend.Find(name)
	open := map[string]func(context.Context, backend.Request) (place, error){backend.AWS: p.openS3, backend.GCS: p.openGCS, backend.Azure: p.openAzure, backend.Postgres: p.openPostgres, backend.Kubernetes: p.openKubernetes}[name]
	naming := map[string]string{backend.AWS: "key", backend.GCS: "prefix", backend.Azure: "key", backend.Postgres: "schema_name", backend.Kubernetes: "secret_suffix"}[name]
	return plugin{b, open, naming, p.Now}, ok
}

// place is where states are.
type place interface {
	what() string                        // for people: the bucket x
	there(context.Context) (bool, error) // does it exist?
	create(context.Context) error
	traits() []trait
	vacant(context.Context) (bool, error) // does it hold no object?

	state() string // the name of the object
	owner() string // the name of the object that says whose the state is
	hasState(context.Context) (bool, error)
	objects() objects
	removePlace(context.Context) (bool, error) // false if it holds something
}

// more is what some places have beside themselves: a table for locks.
type more interface {
	ensureMore(ctx context.Context, say func(string)) error
	removeMore(ctx context.Context, say func(string)) error // what belongs to the state alone
}

// trait is a property that every place for states should have.
type trait struct {
	name string // for people: versioning
	has  func(context.Context) (bool, error)
	set  func(context.Context) error
}

// plugin is one backend with its place; open is nil if it makes nothing.
type plugin struct {
	backend.Builtin
	open   func(context.Context, backend.Request) (place, error)
	naming string // the setting that names the state
	now    func() time.Time
}

// Ensure makes the place, unless it is there.
func (p plugin) Ensure(ctx context.Context, r backend.Request, say func(string)) error {
	if p.open == nil {
		return nil
	}
	at, err := p.open(ctx, r)
	if errors.Is(err, errUnseen) {
		say(fmt.Sprintf("%v, so another cluster with a stack of this name is not noticed", err))
		return nil
	}
	if err != nil {
		return err
	}
	defer closePlace(at)
	there, err := at.there(ctx)
	if err != nil {
		return err
	}
	if !there && r.Expected {
		return fmt.Errorf("%s is gone, and the state of this stack with it. Restore both. To begin with an empty state, create it yourself", at.what())
	}
	if !there {
		if err := at.create(ctx); err != nil {
			return err
		}
		say("created " + at.what())
	}
	if err := protect(ctx, at, there, say); err != nil {
		return err
	}
	if m, ok := at.(more); ok {
		if err := m.ensureMore(ctx, say); err != nil {
			return err
		}
	}
	return p.claim(ctx, at, r, say)
}

// closePlace ends the connection to a place that has one. The process ends after it.
func closePlace(at place) {
	if c, ok := at.(io.Closer); ok {
		_ = c.Close() // what was asked is done
	}
}

// protect gives the place its traits, unless it holds objects.
func protect(ctx context.Context, at place, there bool, say func(string)) error {
	for _, t := range at.traits() {
		has, err := t.has(ctx)
		if err != nil {
			say(fmt.Sprintf("%s: whether %s is enabled is not known: %v", at.what(), t.name, err))
			continue
		}
		if has {
			continue
		}
		vacant := !there
		if there {
			if vacant, err = at.vacant(ctx); err != nil {
				return err
			}
		}
		if !vacant {
			say(fmt.Sprintf("%s: %s is not enabled. The place holds objects, so nothing was changed: enable it yourself", at.what(), t.name))
			continue
		}
		if err := t.set(ctx); err != nil {
			return fmt.Errorf("%s: enabling %s: %w", at.what(), t.name, err)
		}
		say(fmt.Sprintf("%s: enabled %s", at.what(), t.name))
	}
	return nil
}

// Destroy removes the place if it holds nothing, and the state if the request says so.
func (p plugin) Destroy(ctx context.Context, r backend.Request, say func(string)) error {
	if p.open == nil {
		say("nothing was made for this backend, so nothing is removed")
		return nil
	}
	at, err := p.open(ctx, r)
	if err != nil {
		return err
	}
	defer closePlace(at)
	there, err := at.there(ctx)
	if err != nil {
		return err
	}
	if !there {
		say(at.what() + " does not exist")
		return nil
	}
	has, err := at.hasState(ctx)
	if err != nil {
		return err
	}
	if has && !r.Force {
		return fmt.Errorf("%s holds the state %s. Set force in the request to remove it", at.what(), at.state())
	}
	if has {
		if err := at.objects().remove(ctx, at.state()); err != nil {
			return fmt.Errorf("removing the state %s: %w", at.state(), err)
		}
		say("removed the state " + at.state())
	}
	if err := at.objects().remove(ctx, at.owner()); err != nil && !errors.Is(err, errDenied) {
		return fmt.Errorf("removing %s: %w", at.owner(), err)
	}
	if m, ok := at.(more); ok {
		if err := m.removeMore(ctx, say); err != nil {
			return err
		}
	}
	removed, err := at.removePlace(ctx)
	if err != nil {
		return err
	}
	if removed {
		say("removed " + at.what())
	} else {
		say(at.what() + " stays: it holds other objects, or earlier versions")
	}
	return nil
}

// clients reach one service, with the identity of the run. The engine takes the same
// credentials, those of the machine included.
func (p Plugins) clients(of, endpoint string) (cloud.Clients, cloud.Options, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return cloud.Clients{}, cloud.Options{}, fmt.Errorf("reading the address of the service: %w", err)
	}
	o := cloud.Options{Flag: "the backend " + of, Endpoint: u, Credentials: cloud.FromMetadata, Google: of == backend.GCS, Environ: p.Environ, Now: p.Now}
	c, err := cloud.NewClients(o)
	return c, o, err
}

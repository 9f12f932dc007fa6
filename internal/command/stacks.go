// Package command is what a user can have done to stacks, registries and
// templates: approve a plan, suspend, repair, write a state, end a rollout.
//
// It decides nothing about a stack: a command edits the object, and the
// controller draws the conclusions. An edit names the version that it was made
// upon, so that it never reaches something that its author did not see.
//
// Start reading at Stacks, then at Tenants.
package command

import (
	"context"
	"net/url"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
)

// Stacks carries out commands on stacks, and answers questions about them.
type Stacks struct {
	editor
	*States
	*Sessions

	// Git makes the client by which changes of configurations are pushed to a repository; nil if
	// none are.
	Git func(repository *url.URL) (*outbound.Client, error)
}

// New returns the Stacks of these kinds that kube may see and change, with the
// records of their runs.
func New(kube client.WithWatch, kinds query.Kinds, records query.Records, now func() time.Time) *Stacks {
	e := editor{query.New(kube, kinds, records, now)}
	return &Stacks{editor: e, States: &States{e}, Sessions: &Sessions{e}}
}

// editor changes the objects of stacks in the name of the user of its client.
type editor struct{ *query.Stacks }

func (s editor) request() string { return s.Now().UTC().Format(time.RFC3339Nano) }

// whoami is the name of the user in the cluster, empty if the cluster does not say.
// It is only shown: rights do not depend on it.
func (s editor) whoami(ctx context.Context) string {
	var me authnv1.SelfSubjectReview
	if err := s.Kube.Create(ctx, &me); err != nil {
		return ""
	}
	return me.Status.UserInfo.Username
}

// edits bounds how often an edit is retried because the object changed.
const edits = 8

// edit changes what is asked of a stack, in View.Asked, and returns its object as it
// is then. It writes over exactly the version that change saw: if that is no longer
// the newest, change is called again with the newest.
func (s editor) edit(ctx context.Context, key query.Key, change func(*query.Object) error) (*query.Object, error) {
	var err error
	for range edits {
		var o *query.Object
		if o, err = s.Read(ctx, key); err != nil {
			return nil, err
		}
		if err := change(o); err != nil {
			return nil, err
		}
		patch := client.MergeFromWithOptions(o.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
		o.Dialect.Ask(o.Object, o.View.Asked)
		err = access.Fault(s.Kube.Patch(ctx, o.Object, patch, client.FieldOwner(access.FieldManager)), "stack "+key.String())
		if err == nil {
			return query.ReadObject(s.Kinds, o.Object), nil
		}
		if fault.Of(err) != fault.Conflict {
			return nil, err
		}
	}
	return nil, err
}

// person is the name of the user.
func (s editor) person(ctx context.Context) string {
	if who := s.whoami(ctx); who != "" {
		return who
	}
	return "an unknown user"
}

// wake has the controller reconcile the stack.
func (s editor) wake(ctx context.Context, key query.Key) error {
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		o.View.Replan = s.request()
		return nil
	})
	return err
}

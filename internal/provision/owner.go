package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/backend"
)

// Beside each state lies an object that names the cluster whose stack it is. Stacks of two
// clusters may have one name, and so the same state in a bucket that both use: each would
// destroy what the other one created.
//
//	team/network/terraform.tfstate            the engine's
//	team/network/terraform.tfstate.terrier    owner, as JSON
//
// The first cluster that comes writes it. Another one is refused, unless it takes the place
// of the first: then it writes its own name, and the first one is refused.

// ownerSuffix makes the name of that object from the name of the state.
const ownerSuffix = ".terrier"

// maxOwner bounds such an object, in bytes.
const maxOwner = 64 << 10

// errDenied is that the identity of the run may not read or write an object.
var errDenied = errors.New("access is denied")

// errUnseen is that a place which the engine may find is not found by the program. The engine
// says what is wrong with it.
var errUnseen = errors.New("the place of the state is not known")

// owner is the cluster whose stack a state belongs to.
type owner struct {
	Cluster string    `json:"cluster"` // the UID of its namespace kube-system
	Stack   string    `json:"stack"`   // namespace/name, for people
	Since   time.Time `json:"since"`
	Note    string    `json:"note"`
}

// objects are those of a place.
type objects interface {
	get(ctx context.Context, object string) ([]byte, error)                         // nil if there is none
	put(ctx context.Context, object string, data []byte, absent bool) (bool, error) // absent: only if there is none; else false
	remove(ctx context.Context, object string) error                                // of what is gone, too
}

// claim makes sure that the state belongs to the cluster of the request.
func (p plugin) claim(ctx context.Context, at place, r backend.Request, say func(string)) error {
	if r.Stack.Cluster == "" {
		say(fmt.Sprintf("%s: the controller does not know its cluster, so another cluster with a stack of this name is not noticed: allow the controller to get the namespace kube-system", at.what()))
		return nil
	}
	err := p.own(ctx, at, r, say)
	if errors.Is(err, errDenied) {
		// A policy of the bucket may allow the state alone.
		say(fmt.Sprintf("%s: %v, so another cluster with a stack of this name is not noticed: allow to read and write %s", at.what(), err, at.owner()))
		return nil
	}
	return err
}

func (p plugin) own(ctx context.Context, at place, r backend.Request, say func(string)) error {
	mine, err := json.Marshal(owner{
		Cluster: r.Stack.Cluster, Stack: r.Stack.Namespace + "/" + r.Stack.Name, Since: p.now().UTC(),
		Note: "The state " + at.state() + " belongs to a stack of this cluster. Terrier refuses it to the stacks of other clusters.",
	})
	if err != nil {
		return err
	}
	for absent := true; ; absent = false {
		data, err := at.objects().get(ctx, at.owner())
		if err != nil {
			return fmt.Errorf("reading %s: %w", at.owner(), err)
		}
		var is owner
		if data != nil && json.Unmarshal(data, &is) != nil {
			return fmt.Errorf("%s: the object %s names the cluster whose state it is, and cannot be read: delete it if the state is of this cluster", at.what(), at.owner())
		}
		switch {
		case is.Cluster == r.Stack.Cluster:
			return nil
		case data != nil && !slices.Contains(r.Formerly, is.Cluster):
			return p.foreign(at, r, is)
		case data == nil && !absent:
			return fmt.Errorf("%s: another run is writing %s: this one is tried again", at.what(), at.owner())
		}
		wrote, err := at.objects().put(ctx, at.owner(), mine, data == nil)
		switch {
		case err != nil:
			return fmt.Errorf("writing %s: %w", at.owner(), err)
		case wrote && data != nil:
			say(fmt.Sprintf("%s: the state %s belonged to the cluster %s, and belongs to this one from now on", at.what(), at.state(), is.Cluster))
			return nil
		case wrote:
			say(fmt.Sprintf("%s: wrote %s: the state belongs to this cluster", at.what(), at.owner()))
			return nil
		}
		// Another cluster was faster.
	}
}

// foreign refuses the state of another cluster.
func (p plugin) foreign(at place, r backend.Request, is owner) error {
	return fmt.Errorf("%s: the state %s belongs to the stack %s of another cluster (the UID of its namespace kube-system is %s, here it is %s). Give this stack a %s of its own. "+
		"If that cluster is gone and this one takes its place, set the annotation %s: %q on this stack, or start the controller with --adopt-states-of %[4]s for all stacks",
		at.what(), at.state(), is.Stack, is.Cluster, r.Stack.Cluster, p.naming, backend.AdoptStateOf, is.Cluster)
}

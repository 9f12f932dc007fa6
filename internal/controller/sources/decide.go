package sources

import (
	"github.com/fluxcd/pkg/apis/meta"

	"github.com/terrier-iac/terrier/internal/fault"
)

// observation is all that the next step depends on.
type observation struct {
	deleting  bool
	suspended bool

	artifact *meta.Artifact // what the status says; nil if nothing
	stored   bool           // the store holds exactly that
	shaped   bool           // it was made by the rules of the spec
	unsigned bool           // it lacks the signature that the spec asks for
	unproven bool           // a user asked for a reconcile, and it is not certain that it is from the URL of the spec
	pointers bool           // an earlier release left pointers of Git LFS in it, which stall a stack

	revision string // what the origin has now
	failure  error  // why that is not known
}

// step is what to do next.
type step string

const (
	leave   step = "leave"   // do nothing and write nothing
	release step = "release" // delete the artifacts
	hold    step = "hold"    // the artifact is what it should be
	build   step = "build"   // make a new artifact
	repair  step = "repair"  // make the artifact again, or leave it as it is
	fail    step = "fail"    // report the failure; the artifact stays
)

// decide is the life of a source. The order matters: a deleted object is only
// released, a suspended one stays exactly as it is, and an artifact is replaced only
// after its successor was fetched. Making the same revision again gives its artifact
// another digest, which ends pending plans: only a stack that is stalled by the old one
// is a reason, or a user who asks for it.
func decide(o observation) step {
	switch {
	case o.deleting:
		return release
	case o.suspended:
		return leave
	case o.failure != nil:
		return fail
	case o.artifact == nil, !o.stored, !o.shaped, o.unsigned, o.unproven, o.artifact.Revision != o.revision:
		return build
	case o.pointers:
		return repair
	default:
		return hold
	}
}

// stalled reports whether a failure needs an action of a user.
func stalled(err error) bool { return fault.Of(err).Meaning().Stalled }

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

	revision string // what the origin has now
	failure  error  // why that is not known
}

// step is what to do next.
type step string

const (
	leave   step = "leave"   // do nothing and write nothing
	release step = "release" // let go of what is stored
	hold    step = "hold"    // the artifact is what it should be
	build   step = "build"   // make a new artifact
	fail    step = "fail"    // report the failure; an artifact that is there stays
)

// decide is the life of a source. The order matters: an object that goes away
// is not looked at further, one that is suspended is left exactly as it is, and
// nothing is replaced while it is not known by what.
func decide(o observation) step {
	switch {
	case o.deleting:
		return release
	case o.suspended:
		return leave
	case o.failure != nil:
		return fail
	case o.artifact == nil, !o.stored, !o.shaped, o.artifact.Revision != o.revision:
		return build
	default:
		return hold
	}
}

// stalled reports whether somebody has to act before a failure can go away.
func stalled(err error) bool { return fault.Of(err).Meaning().Stalled }

package record

import (
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// AppliedPlan is a plan that was applied.
type AppliedPlan struct {
	Plan  stack.Plan `json:"plan"`
	Run   string     `json:"run"` // that applied it
	At    time.Time  `json:"at"`  // when it was applied
	Bytes int64      `json:"bytes,omitempty"`
}

// AppliedKept is how many plans that a stack applied are kept at most, so that policies can be
// tried on them.
const AppliedKept = 5

// appliedBytes bounds their documents, beside that of the newest.
const appliedBytes = 32 << 20

// Applied are the plans that a stack applied last, the newest first.
func Applied(uid string) Of[[]AppliedPlan] { return At[[]AppliedPlan](applied.key(uid)) }

// WithApplied puts a plan in front of those that were applied before, and leaves out those
// that are beyond the bounds. Noting a plan again changes nothing.
func WithApplied(before []AppliedPlan, now AppliedPlan) []AppliedPlan {
	now.Plan.Addresses, now.Plan.Example = "", "" // of drift that is pending
	all := []AppliedPlan{now}
	var size int64
	for _, a := range before {
		if a.Run == now.Run || a.Plan.Digest == now.Plan.Digest {
			continue
		}
		if size += a.Bytes; size > appliedBytes {
			break
		}
		all = append(all, a)
	}
	return all[:min(len(all), AppliedKept)]
}

// AppliedFiles are the files of such a plan that are kept as long as it is among them. The
// saved plan is not: it can be applied no more.
func AppliedFiles(uid string, all []AppliedPlan) []string {
	var keys []string
	for _, a := range all {
		for _, file := range []string{PlanFile, UsesFile, VerdictFile} {
			keys = append(keys, Plan(uid, a.Plan.Digest, file))
		}
	}
	slices.Sort(keys)
	return keys
}

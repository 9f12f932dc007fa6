package review

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Reviewers are all who review plans. It is the one place where the reviewers of the
// operator join those that an object names.
type Reviewers struct {
	Webhooks Webhooks   // how webhooks are asked
	Operator []Operator // asked about the plans of every stack, after those of its object
}

// Operator is a reviewer of the operator.
type Operator struct {
	// Version tells what the answer depends on beside the plan, such as the digest of
	// a policy: with another version every pending plan is reviewed again.
	Version string
	Reviewer
}

// Of returns the reviewers of a stack, in the order in which they are asked.
func (rs Reviewers) Of(c stack.Configuration) []Reviewer {
	all := rs.Webhooks.Reviewers(c)
	for _, o := range rs.Operator {
		all = append(all, o.Reviewer)
	}
	return all
}

// Sees reports whether a document of the plans of a stack has to be kept for its
// reviewers. Webhooks that the object gets later count as well.
func (rs Reviewers) Sees(c stack.Configuration, d Document) bool {
	return rs.Webhooks.document(c) == d || slices.ContainsFunc(rs.Operator, func(o Operator) bool { return o.Sees() == d })
}

// Digest identifies the reviewers of a stack, for stack.Spec.Reviews: own is the
// digest of those that its object names. It is empty if there are none, and own if
// the operator has none, so that an upgrade asks no reviewer again.
func (rs Reviewers) Digest(own string) string {
	if len(rs.Operator) == 0 {
		return own
	}
	parts := []string{own}
	for _, o := range rs.Operator {
		parts = append(parts, o.Version)
	}
	return stack.Digest(parts)
}

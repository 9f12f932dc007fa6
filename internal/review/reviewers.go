package review

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Reviewers are all who review plans. It is the one place where policies join the webhooks
// that an object names.
type Reviewers struct {
	Webhooks Webhooks // how webhooks are asked
}

// Of returns the reviewers of a stack, in the order in which they are asked: what a policy
// denies, no webhook is sent.
func (rs Reviewers) Of(c stack.Configuration, policies ...Reviewer) []Reviewer {
	return append(slices.Clone(policies), rs.Webhooks.Reviewers(c)...)
}

// Sees reports whether a document of the plans of a stack has to be kept for its
// reviewers. Webhooks that the object gets later count as well. Policies see the masked
// document, which is always kept.
func (rs Reviewers) Sees(c stack.Configuration, d Document) bool { return rs.Webhooks.document(c) == d }

// Digest identifies the reviewers of a stack, for stack.Spec.Reviews: own is the digest of
// those that its object names, and policies that of the policies which judge it. It is empty
// if there are none, and own if there are no policies, so that an upgrade asks no reviewer
// again.
func Digest(own, policies string) string {
	if policies == "" {
		return own
	}
	return stack.Digest([]string{own, policies})
}

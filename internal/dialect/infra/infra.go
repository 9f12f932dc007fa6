// Package infra reads objects of infra.contrib.fluxcd.io, the API of
// tofu-controller, as stacks. It is pure: it looks at the object it is given,
// and resolves nothing that the object refers to.
//
// It refuses what would be dangerous to pass over, such as a field that says
// where the state is and does not work yet; any other field that does not work
// yet is named by notYet. What each field means is in docs/compatibility.md.
//
// Start reading at Decode.
package infra

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Defaults are the times of objects that set none. Zero means upstream's.
type Defaults struct {
	Interval   time.Duration // 10m, as in the CRD
	RetryEvery time.Duration // 15s
	RetryMax   time.Duration // 24h
}

// Decode returns what obj asks for, how, and what its status says.
//
// Spec and Status are valid whenever the error's kind is Invalid, so that a stack
// whose spec is invalid can still be suspended, or deleted by what its status
// says. When the status itself cannot be read the error is Broken, and nothing
// may be decided: a stack without its status would abandon what exists.
func Decode(obj *v1alpha2.Terraform, d Defaults) (stack.Spec, stack.Configuration, stack.Status, error) {
	m, err := stored(&obj.Status)
	if err != nil {
		return stack.Spec{}, stack.Configuration{}, stack.Status{}, err
	}
	p, err := configuration(obj.Name, &obj.Spec)
	s := spec(&obj.Spec, d)
	if p.Outputs != nil {
		s.Outputs = stack.Digest(p.Outputs)
	}
	s.Health = checksDigest(p)
	if why := reviews(obj, &s, &p); err == nil {
		err = why
	}
	return s, p, m, err
}

// spec cannot fail: every value that a field may have means something.
func spec(s *v1alpha2.TerraformSpec, d Defaults) stack.Spec {
	out := stack.Spec{
		Mode:        mode(s),
		Force:       s.Force,
		Suspended:   s.Suspend,
		Destroy:     s.Destroy,
		DestroyLast: s.DestroyResourcesOnDeletion,
		CheckDrift:  !s.DisableDriftDetection && !s.Destroy,
		Interval:    every(s.Interval, cmp.Or(d.Interval, 10*time.Minute)),
		RetryEvery:  every(s.RetryInterval, cmp.Or(d.RetryEvery, 15*time.Second)),
		RetryMax:    cmp.Or(d.RetryMax, 24*time.Hour),
		Backoff:     stack.Static,
		Unlock:      unlock(s.TfState),
	}
	if out.Mode == stack.Manual {
		out.Approved = s.ApprovePlan
	}
	if s.RetryStrategy == v1alpha2.ExponentialBackoff {
		out.Backoff = stack.Exponential
	}
	if m := s.MaxRetryInterval; m != nil && m.Duration > 0 {
		out.RetryMax = m.Duration
	}
	if r := s.Remediation; r != nil && r.Retries != nil && *r.Retries >= 0 {
		n := int(min(*r.Retries, 1<<30))
		out.MaxRetries = &n
	}
	return out
}

// mode reads approvePlan and planOnly. A stack that only checks drift keeps no
// plan, so planOnly adds nothing to it.
func mode(s *v1alpha2.TerraformSpec) stack.Mode {
	switch {
	case s.ApprovePlan == v1alpha2.ApproveDisable:
		return stack.DriftOnly
	case s.PlanOnly:
		return stack.PlanOnly
	case s.ApprovePlan == v1alpha2.ApproveAuto:
		return stack.Auto
	default:
		return stack.Manual
	}
}

// shortest is the least time between two runs of a stack: a stack that is retried
// without a pause would take the turns of others.
const shortest = time.Second

func every(d *metav1.Duration, absent time.Duration) time.Duration {
	switch {
	case d == nil:
		return absent
	case d.Duration <= 0:
		return dialect.Never // upstream reads it as: not by itself, only when something changes
	default:
		return max(d.Duration, shortest)
	}
}

// unlock reads tfstate. To break a lock its identifier must be given; yes
// alone breaks none, since it stays in the spec after the lock it meant.
func unlock(s *v1alpha2.TfState) stack.Unlock {
	switch {
	case s == nil:
		return stack.Unlock{}
	case s.ForceUnlock == v1alpha2.UnlockAuto:
		return stack.Unlock{Auto: true}
	case s.ForceUnlock == v1alpha2.UnlockYes:
		return stack.Unlock{ID: s.LockIdentifier}
	default:
		return stack.Unlock{}
	}
}

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/drift/patch"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// holdFor is how long a stack waits for the change of its configuration, unless the user says it.
const holdFor = 24 * time.Hour

// Reasons of orders to accept drift that are refused.
const (
	ReasonOtherDrift = "OtherDrift" // what drifted is not what the user saw
	ReasonNoBranch   = "NoBranch"   // no change can be pushed
)

// AcceptDrift accepts the drift of a stack: the object says so, with the digest of the plan that
// would enforce the configuration, and Terrier does not apply that plan for a while. With a
// branch, the configuration is changed in the git repository of the source before, and pushed;
// the credentials are read as the user. A stack without drift is Missing it; another drift than
// the user saw is a Conflict.
func (s *Stacks) AcceptDrift(ctx context.Context, key query.Key, order AcceptDriftOrder) (AcceptedDrift, error) {
	hold := cmp.Or(time.Duration(order.HoldSeconds)*time.Second, holdFor)
	if hold < time.Minute || hold > stack.AcceptedMost {
		return AcceptedDrift{}, fault.New(fault.Invalid, "HoldInvalid", fmt.Errorf("--hold is %s, and may be from 1m to %s", hold, stack.AcceptedMost))
	}
	o, err := s.Read(ctx, key)
	if err == nil {
		err = o.Invalid
	}
	if err != nil {
		return AcceptedDrift{}, err
	}
	seen, err := driftOf(o, order.Digest)
	if err != nil {
		return AcceptedDrift{}, err
	}
	out := AcceptedDrift{Plan: seen.Name, Digest: seen.Digest, Until: s.Now().Add(hold).UTC().Truncate(time.Second), Branch: order.Branch}
	if order.Branch != "" {
		if err := s.pushDrift(ctx, o, order, &out); err != nil {
			return AcceptedDrift{}, err
		}
	}
	_, err = s.edit(ctx, key, func(o *query.Object) error {
		if _, err := driftOf(o, seen.Digest); err != nil {
			return err
		}
		o.View.AcceptDrift = stack.AcceptedDrift{Plan: seen.Digest, Until: out.Until, Ignored: order.IgnoreChanges, Why: fault.Shorten(strings.Join(strings.Fields(order.Reason), " "), mostReason)}.String()
		return nil
	})
	return out, err
}

// driftOf is the plan that would enforce the configuration, which has to be the one that the user
// saw.
func driftOf(o *query.Object, seen string) (stack.Plan, error) {
	p := o.Status.Pending
	switch {
	case p == nil || o.Status.Drift == nil:
		return stack.Plan{}, fault.New(fault.Missing, query.ReasonNoDrift, fmt.Errorf("no drift of the stack %s is known. To check it now: terrier replan", o.Key()))
	case seen != "" && seen != p.Digest:
		return stack.Plan{}, fault.New(fault.Conflict, ReasonOtherDrift, fmt.Errorf("the drift of the stack %s changed since it was shown. View it again: terrier drift show", o.Key()))
	}
	return *p, nil
}

// pushDrift changes the configuration in the repository of the source, on a branch.
func (s *Stacks) pushDrift(ctx context.Context, o *query.Object, order AcceptDriftOrder, out *AcceptedDrift) error {
	if err := source.CheckBranch(order.Branch); err != nil {
		return err
	}
	from := o.Configuration.Source
	if from == nil || from.Kind != sourcev1.GitRepositoryKind {
		return fault.New(fault.Invalid, ReasonNoBranch, errors.New("--branch needs a GitRepository as the source of the stack: use --patch"))
	}
	if s.Git == nil {
		return fault.New(fault.Invalid, ReasonNoBranch, errors.New("--branch: this server pushes nothing: use --patch"))
	}
	doc, err := s.Document(ctx, query.View(o).ID(), *query.PlanInfoOf(o.Status.Pending))
	if err != nil {
		return err
	}
	drifted, err := query.DriftIn(doc.Document, order.DriftOrder)
	if err != nil {
		return err
	}
	git, done, err := s.repository(ctx, o, *from, order.PushSecret)
	if err != nil {
		return err
	}
	defer done()
	of := query.ConfiguredOf(o)
	out.Commit, err = git.Push(ctx, source.NewCommit{
		Branch: order.Branch, Reads: query.IsConfiguration, Author: s.person(ctx), At: s.Now(),
		Message: fmt.Sprintf("Accept the drift of the stack %s\n\nThe configuration says what is there, so that a plan has no changes.\nDrift: %s (%s)\n", o.Key(), out.Plan, out.Digest),
		Edit: func(files map[string][]byte) (map[string][]byte, error) {
			of.Module.Files = files
			p, err := patch.Propose(of.Module, patch.Wish{Resources: drifted, IgnoreChanges: order.IgnoreChanges})
			out.Edits, out.Open = p.Edits, p.Open
			return p.Files, err
		},
	})
	if fault.Reason(err, "") == source.ReasonUnchanged {
		return fault.New(fault.Invalid, ReasonNoBranch, fmt.Errorf("no edit of the configuration accepts this drift: terrier drift accept STACK --dry-run says why"))
	}
	return err
}

// repository is the git repository of a source, with credentials that the user may read. Done has
// to be called when it is not needed any more.
func (s *Stacks) repository(ctx context.Context, o *query.Object, from stack.Ref, secret string) (git *source.Git, done func(), err error) {
	in := cmp.Or(from.Namespace, o.GetNamespace())
	var r sourcev1.GitRepository
	if err := s.Kube.Get(ctx, types.NamespacedName{Namespace: in, Name: from.Name}, &r); err != nil {
		return nil, nil, access.Fault(err, "GitRepository "+in+"/"+from.Name)
	}
	u, err := url.Parse(r.Spec.URL)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, source.ReasonURL, errors.New("the URL of the GitRepository cannot be read"))
	}
	git = &source.Git{URL: r.Spec.URL}
	if ref := r.Spec.Reference; ref != nil {
		if ref.Branch == "" {
			return nil, nil, fault.New(fault.Invalid, ReasonNoBranch, fmt.Errorf("--branch: the GitRepository %s/%s follows no branch, on top of which a change could be pushed: use --patch", in, from.Name))
		}
		git.Ref = source.GitRef{Branch: ref.Branch}
	}
	if r.Spec.SecretRef != nil {
		secret = cmp.Or(secret, r.Spec.SecretRef.Name)
	}
	if secret != "" {
		data, _, err := kube.ReadSecret(ctx, s.Kube, types.NamespacedName{Namespace: in, Name: secret})
		if err != nil {
			return nil, nil, fmt.Errorf("reading the credentials for the repository: %w", err)
		}
		git.Auth = source.GitAuthFrom(data)
	}
	if git.Out, err = s.Git(u); err != nil {
		return nil, nil, err
	}
	if git.Scratch, err = os.MkdirTemp("", "terrier-drift-"); err != nil {
		git.Out.Close()
		return nil, nil, fmt.Errorf("making a directory for a repository: %w", err)
	}
	return git, func() {
		git.Out.Close()
		_ = os.RemoveAll(git.Scratch) // it is below the directory for temporary files
	}, nil
}

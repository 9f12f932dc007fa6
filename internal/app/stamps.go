package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/config/admission"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/kube"
)

// An API server acts on a new policy within a second. Where it has known the
// kinds for less than five seconds, too, it refuses every write of them until it
// has looked at their schemas.
const (
	stampsWithin = 20 * time.Second
	stampsEvery  = 200 * time.Millisecond
)

// stamps makes the API server record the user of each change, with policies if
// it does not do so by itself, as our own does, and waits until it does: an
// object that is created earlier would be refused, or lack the name.
func stamps(ctx context.Context, direct client.Client, log *slog.Logger) error {
	there, err := kube.PoliciesThere(ctx, direct, admission.Files)
	if err != nil {
		return err
	}
	if stamped, _ := stampsNow(ctx, direct); stamped && !there {
		return nil
	}
	err = kube.InstallPolicies(ctx, direct, admission.Files)
	if errors.Is(err, kube.ErrNoPolicies) {
		log.Warn("the audit log will not contain the users of changes", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	return awaitStamps(ctx, direct, log)
}

// awaitStamps waits until stacks are stamped. It only tests a dry run,
// so a failure affects only the first seconds.
func awaitStamps(ctx context.Context, direct client.Client, log *slog.Logger) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, stampsEvery, stampsWithin, true, func(ctx context.Context) (bool, error) {
		var stamped bool
		stamped, last = stampsNow(ctx, direct)
		// Any other refusal would be repeated.
		return stamped || last != nil && !later(last), nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || last != nil {
		log.Warn("cannot verify that the API server records the users of changes", "err", errors.Join(err, last))
	}
	return nil
}

// later reports whether an API server has not answered yet.
func later(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// stampsNow creates a stack as a dry run and reports whether it was stamped.
func stampsNow(ctx context.Context, direct client.Client) (bool, error) {
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, GenerateName: "terrier-stamped-"}}
	s.Spec.Suspend = true
	s.Spec.Interval = &metav1.Duration{Duration: time.Hour}
	s.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "none"}
	err := direct.Create(ctx, s, client.DryRunAll)
	return s.Annotations[kube.ChangedBy] != "", err
}

package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/internal/fault"
)

// The reasons of what the cluster refuses.
const (
	ReasonNotFound     = "NotFound"
	ReasonNotInstalled = "NotInstalled"
	ReasonUnreachable  = "Unreachable"
	ReasonNoLeader     = "NoLeader"    // of several controllers none leads for a moment
	ReasonMoving       = "StackMoving" // the stack has no controller for a moment
	ReasonAccessDenied = "AccessDenied"
	ReasonUnknownUser  = "UnknownUser"
	ReasonBusy         = "ServerBusy"
	ReasonNoSeat       = "TooManyStates" // too many requests carry a state at once; nothing was done
)

// The reasons of how a cluster or a server is found.
const (
	ReasonNoKubeconfig = "NoKubeconfig"
	ReasonNoServer     = "NoServer"
	ReasonNoToken      = "NoToken"
)

// Fault translates an error of the Kubernetes API about the object that what names.
func Fault(err error, what string) error {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f // made by the connection, which knows more
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Later, ReasonBusy, fmt.Errorf("the cluster has not answered in time: %s: %w", what, err))
	case apierrors.IsNotFound(err) && noSuchKind(err), meta.IsNoMatchError(err):
		return fault.New(fault.Missing, ReasonNotInstalled, errors.New("this cluster does not know the kind Terraform of infra.contrib.fluxcd.io"))
	case apierrors.IsNotFound(err):
		return fault.New(fault.Missing, ReasonNotFound, fmt.Errorf("%s does not exist", what))
	case apierrors.IsUnauthorized(err):
		return fault.New(fault.Denied, ReasonUnknownUser, fmt.Errorf("the cluster does not know the user that asks for %s: %w", what, err))
	case apierrors.IsForbidden(err):
		return fault.New(fault.Denied, ReasonAccessDenied, fmt.Errorf("%s: %w", what, err))
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fault.New(fault.Conflict, "Conflict", fmt.Errorf("%s changed in the meantime: %w", what, err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		return fault.New(fault.Invalid, "Refused", fmt.Errorf("%s: %w", what, err))
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		after, _ := apierrors.SuggestsClientDelay(err)
		return fault.Wait(time.Duration(after)*time.Second, ReasonBusy, fmt.Errorf("the cluster is busy: %s: %w", what, err))
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fault.New(fault.Later, ReasonUnreachable, fmt.Errorf("the cluster cannot be reached: %w", err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// noSuchKind tells a kind that is not installed from an object that does not
// exist: only the error about an object has a name.
func noSuchKind(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Name == ""
}

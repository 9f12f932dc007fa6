package states

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// GiveUp records the last known state of a stack, in whose place a user accepted what is
// there: no status names it from then on, and its resources may still exist. It is recorded
// once.
func (kp *Keeper) GiveUp(ctx context.Context, of Subject, e stack.ExpectedState) error {
	at := record.At[kube.Forgotten](record.Retained(of.ID, record.ForgottenFile))
	kept, err := at.Read(ctx, kp.Records.Blobs)
	if fault.Of(err) == fault.Missing {
		kept, err = kube.Forgotten{Resources: []stack.ForgottenResource{}}, nil
	}
	if err != nil {
		return fmt.Errorf("reading which states were given up: %w", err)
	}
	kept.Stack, kept.Kind, kept.UID = client.ObjectKeyFromObject(of.Object).String(), kp.Dialects.Word(of.Dialect), of.ID
	given := e.GiveUp(stack.AcceptedWhy(of.Observed.Spec.AcceptState), of.Observed.Now)
	if slices.ContainsFunc(kept.GivenUp, func(g stack.GivenUp) bool { return g.Token == given.Token }) {
		return nil
	}
	kept.GivenUp = append(kept.GivenUp, given)
	return at.Write(ctx, kp.Records.Blobs, kept)
}

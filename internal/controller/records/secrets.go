package records

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
)

// RememberSecrets keeps prints of the secret values that a run is given, before it
// begins: a view of its state hides them, also when the Secrets hold others by then.
func (s *Store) RememberSecrets(ctx context.Context, id string, values []string) error {
	if len(values) == 0 {
		return nil
	}
	at := record.At[plan.Remembered](record.Secrets(id))
	known, err := at.Read(ctx, s.Blobs)
	if fault.Of(err) == fault.Missing {
		known = plan.Remembered{Key: make([]byte, 32)}
		_, err = rand.Read(known.Key)
	}
	if err == nil && known.Add(values) {
		err = at.Write(ctx, s.Blobs, known)
	}
	if err != nil {
		return fmt.Errorf("remembering which values came from Secrets: %w", err)
	}
	return nil
}

// SecretPrints recognise the secret values that a stack was given.
func (s *Store) SecretPrints(ctx context.Context, id string) (plan.Prints, error) {
	known, err := record.At[plan.Remembered](record.Secrets(id)).Read(ctx, s.Blobs)
	if fault.Of(err) == fault.Missing {
		return plan.Prints{}, nil
	}
	if err != nil {
		return plan.Prints{}, err
	}
	return known.Prints()
}

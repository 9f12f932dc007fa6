package records

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
)

// errSecretsDamaged marks a record of secret values that is there and cannot be read.
var errSecretsDamaged = errors.New("the record of the secret values is damaged")

// Remembering is what came of remembering secret values.
type Remembering struct {
	Damage     error // why the earlier record was replaced; nil if it was whole
	Incomplete bool  // values that the stack was given earlier are not known
}

// RememberSecrets keeps prints of the secret values that a run is given, before it
// begins: a view of its state hides them, also when the Secrets hold others by then.
// A damaged record is replaced. It counts as incomplete until the state holds only
// what runs after that were given: settled is when a run last found or made the state
// as its inputs want it.
func (s *Store) RememberSecrets(ctx context.Context, id string, values []string, now, settled time.Time) (Remembering, error) {
	var done Remembering
	known, err := s.remembered(ctx, id)
	fresh := false
	switch {
	case fault.Of(err) == fault.Missing:
		known, err = newRemembered()
	case errors.Is(err, errSecretsDamaged):
		done.Damage, fresh = err, true
		known, err = newRemembered()
		known.Lost = now
	case err == nil && !known.Lost.IsZero() && settled.After(known.Lost):
		known.Lost, fresh = time.Time{}, true
	}
	if err == nil && (known.Add(values) || fresh) {
		err = record.At[plan.Remembered](record.Secrets(id)).Write(ctx, s.Blobs, known)
	}
	if err != nil {
		return done, fmt.Errorf("remembering which values came from Secrets: %w", err)
	}
	done.Incomplete = !known.Lost.IsZero()
	return done, nil
}

func newRemembered() (plan.Remembered, error) {
	m := plan.Remembered{Key: make([]byte, 32)}
	_, err := rand.Read(m.Key)
	return m, err
}

// remembered reads the record. That it is damaged is told from a store that fails.
func (s *Store) remembered(ctx context.Context, id string) (plan.Remembered, error) {
	b, err := s.Get(ctx, record.Secrets(id))
	if fault.Reason(err, "") == blob.Damaged {
		return plan.Remembered{}, fmt.Errorf("%w: %w", errSecretsDamaged, err)
	}
	if err != nil {
		return plan.Remembered{}, err
	}
	known, err := plan.ReadRemembered(b)
	if err != nil {
		return known, fmt.Errorf("%w: %w", errSecretsDamaged, err)
	}
	return known, nil
}

// SecretPrints recognise the secret values that a stack was given. If the record of
// them is damaged or incomplete, every value counts as one.
func (s *Store) SecretPrints(ctx context.Context, id string) (plan.Prints, error) {
	known, err := s.remembered(ctx, id)
	switch {
	case fault.Of(err) == fault.Missing:
		return plan.Prints{}, nil
	case errors.Is(err, errSecretsDamaged):
		return plan.Prints{All: true}, nil
	case err != nil:
		return plan.Prints{}, err
	}
	return known.Prints()
}

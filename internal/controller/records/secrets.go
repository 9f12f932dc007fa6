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

// Remembering is what came of remembering secret values.
type Remembering struct {
	Damage     error // why values are not known that were known before; nil if that is not new
	Incomplete bool  // values that the stack was given earlier are not known
}

// RememberSecrets keeps prints of the secret values that a run is given, before it
// begins: a view of its state hides them, also when the Secrets hold others by then.
// A damaged record is replaced. It counts as incomplete until SettleSecrets.
func (s *Store) RememberSecrets(ctx context.Context, id string, values []string, now time.Time) (Remembering, error) {
	return s.remember(ctx, id, now, func(m *plan.Remembered) bool { return m.Add(values) })
}

// RememberMade is RememberSecrets for values that were made for one run. They push out no
// others.
func (s *Store) RememberMade(ctx context.Context, id string, values []string, now time.Time) (Remembering, error) {
	return s.remember(ctx, id, now, func(m *plan.Remembered) bool { return m.AddMade(values) })
}

func (s *Store) remember(ctx context.Context, id string, now time.Time, add func(*plan.Remembered) bool) (Remembering, error) {
	var done Remembering
	known, err := s.secretRecord(ctx, id)
	if errors.Is(err, record.ErrSecretsUnknown) {
		done.Damage, known.Lost, err = err, now, nil
	}
	if fault.Of(err) == fault.Missing {
		err = nil
	}
	if err == nil && len(known.Key) == 0 {
		known.Key = make([]byte, 32)
		_, err = rand.Read(known.Key)
	}
	if err == nil && (add(&known.Remembered) || done.Damage != nil) {
		err = known.Place.Write(ctx, s.Blobs, known.Remembered)
		if err == nil && known.Former != "" {
			err = s.Blobs.Delete(ctx, known.Former)
		}
	}
	if err != nil {
		return done, fmt.Errorf("remembering which values came from Secrets: %w", err)
	}
	done.Incomplete = !known.Lost.IsZero()
	return done, nil
}

// SettleSecrets makes an incomplete record complete: the state holds only values that
// runs were given since the record is incomplete.
func (s *Store) SettleSecrets(ctx context.Context, id string) error {
	known, err := s.secretRecord(ctx, id)
	if fault.Of(err) == fault.Missing || errors.Is(err, record.ErrSecretsUnknown) {
		return nil // the next run begins the record
	}
	if err != nil || known.Lost.IsZero() {
		return err
	}
	known.Lost = time.Time{}
	return known.Place.Write(ctx, s.Blobs, known.Remembered)
}

func (s *Store) secretRecord(ctx context.Context, id string) (record.SecretRecord, error) {
	get := func(key string) ([]byte, error) { return s.Get(ctx, key) }
	return record.ReadSecrets(id, get, record.SecretFaults{Damaged: blob.Damaged, KeyUnknown: blob.KeyUnknown})
}

// SecretPrints recognise the secret values that a stack was given. If the record of
// them is not whole, every value counts as one.
func (s *Store) SecretPrints(ctx context.Context, id string) (plan.Prints, error) {
	known, err := s.secretRecord(ctx, id)
	switch {
	case fault.Of(err) == fault.Missing:
		return plan.Prints{}, nil
	case errors.Is(err, record.ErrSecretsUnknown):
		return plan.Prints{All: true}, nil
	case err != nil:
		return plan.Prints{}, err
	}
	return known.Prints()
}

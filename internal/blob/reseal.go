package blob

import (
	"context"
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Reseal seals the value of a key with the current one of the keys, and reports whether it was
// sealed with another one. Readers find the old value or the new one, and a value that is
// written or removed meanwhile stays as it is then. What no key opens is an error, and stays.
func Reseal(ctx context.Context, store Versions, keys Keys, key string) (resealed bool, err error) {
	value, err := store.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, value.Close()) }()
	s := sealed{store, keys}
	plain, err := s.open(ctx, key, value)
	if err != nil {
		return false, fmt.Errorf("opening blob %s: %w", key, err)
	}
	current := keys.Current()
	if plain.chunks.key.id == current.id {
		return false, nil
	}
	again, err := s.sealing(current, key, plain)
	if err != nil {
		return false, err
	}
	_, err = store.Replace(ctx, key, value.Version, again)
	switch {
	case fault.Reason(err, "") == Changed:
		return false, nil // a newer value, which its writer sealed
	case err != nil:
		return false, fmt.Errorf("sealing blob %s again: %w", key, err)
	}
	return true, nil
}

package record

import (
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
)

// ErrSecretsUnknown marks that values which a stack was given from Secrets are not known.
var ErrSecretsUnknown = errors.New("the record of the secret values is not whole")

// SecretRecord are the prints of the secret values that runs of a stack were given.
type SecretRecord struct {
	plan.Remembered
	Place Of[plan.Remembered] // where the prints are, or are to be kept

	// Former is the key of a record that goes once Place is written; empty if there
	// is none.
	Former string
}

// SecretFaults are the reasons of a store's errors.
type SecretFaults struct{ Damaged, KeyUnknown string }

// ReadSecrets reads what is known of the secret values of a stack. A record that is
// sealed with an unknown key stays as it is, since the key may come back: until then
// the prints of later values are in a record beside it. If values are not known, the
// error is ErrSecretsUnknown, and what is returned holds what is known.
func ReadSecrets(uid string, get func(key string) ([]byte, error), reasons SecretFaults) (SecretRecord, error) {
	at, besideAt := Secrets(uid), SecretsBeside(uid)
	// The one beside is read first: it goes after the other one was written.
	beside, besideErr := readSecrets(besideAt, get, reasons)
	main, err := readSecrets(at, get, reasons)
	for _, err := range []error{besideErr, err} {
		if err != nil && fault.Of(err) != fault.Missing && !errors.Is(err, ErrSecretsUnknown) {
			return SecretRecord{}, err
		}
	}
	none := fault.Of(besideErr) == fault.Missing
	switch {
	case fault.Reason(err, "") == reasons.KeyUnknown && none:
		return SecretRecord{Place: At[plan.Remembered](besideAt)}, err
	case fault.Reason(err, "") == reasons.KeyUnknown:
		return SecretRecord{Remembered: beside, Place: At[plan.Remembered](besideAt)}, besideErr
	case none:
		return SecretRecord{Remembered: main, Place: At[plan.Remembered](at)}, err
	}
	if err == nil {
		err = errors.New("its key is known again; it lacks the values that runs were given meanwhile")
	}
	return SecretRecord{Remembered: main, Place: At[plan.Remembered](at), Former: besideAt}, unknownSecrets(err)
}

func readSecrets(key string, get func(key string) ([]byte, error), reasons SecretFaults) (plan.Remembered, error) {
	b, err := get(key)
	switch {
	case err != nil && (fault.Reason(err, "") == reasons.Damaged || fault.Reason(err, "") == reasons.KeyUnknown):
		return plan.Remembered{}, unknownSecrets(err)
	case err != nil:
		return plan.Remembered{}, err
	}
	m, err := plan.ReadRemembered(b)
	if err != nil {
		return plan.Remembered{}, unknownSecrets(err)
	}
	return m, nil
}

// unknownSecrets is ErrSecretsUnknown with its cause. That a record is missing is
// told by its kind, which this error has not.
func unknownSecrets(err error) error {
	if errors.Is(err, ErrSecretsUnknown) {
		return err
	}
	if fault.Of(err) == fault.Missing {
		return fmt.Errorf("%w: %v", ErrSecretsUnknown, err) //nolint:errorlint // it is not Missing
	}
	return fmt.Errorf("%w: %w", ErrSecretsUnknown, err)
}

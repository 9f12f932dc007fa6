package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/fault"
)

// kmsPlain is the first value of --records-kms on the way back: no service wraps keys any
// more, and those after it unwrap the ones that are wrapped.
const kmsPlain = "plain"

// plain reports whether keys become plain again.
func (o Options) plain() bool { return len(o.KMS) > 0 && o.KMS[0] == kmsPlain }

// keepers opens the keys of --records-kms. The first one wraps, and all of them unwrap.
func (o Options) keepers() (all []kms.Keeper, err error) {
	for _, text := range services(o.KMS) {
		place, err := kms.Parse(text, o.Environ)
		if err != nil {
			return nil, usage("--records-kms %s: %w", shown(text), err)
		}
		k, err := kms.Open(place, kms.Options{Environ: o.Environ, Now: o.Now, Allow: o.Allow})
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// services are the values of --records-kms without kmsPlain.
func services(all []string) []string {
	if len(all) > 0 && all[0] == kmsPlain {
		return all[1:]
	}
	return all
}

// awaitEvery is how long a start waits for a key management service before it asks again.
const awaitEvery = 5 * time.Second

// await repeats a step of the start while a key management service does not answer.
func (o Options) await(ctx context.Context, step func() error) error {
	for last := ""; ; {
		err := step()
		if err == nil || !kms.Passing(err) {
			return err
		}
		if said := err.Error(); said != last {
			last = said
			o.Progress("waiting for the keys of records: %v", err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(awaitEvery):
		}
	}
}

// fileOf is the key in the data directory if it encrypted the records there, which lie
// under the keys of a Secret from now on.
func (o Options) fileOf(ctx context.Context, raw blob.Store) ([]byte, error) {
	path := o.Dir("secrets", "records")
	if o.Records != "" {
		return nil, nil
	}
	secret, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := blob.NewKey(secret)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w", path, err)
	}
	if o.opens(ctx, blob.Seal(raw, key)) != nil {
		return nil, nil // the records have another key
	}
	return secret, nil
}

// wrapped is the text of a key: wrapped if there is a service for it. No text is returned
// that the service does not open again.
func (r *ring) wrapped(ctx context.Context, secret []byte) ([]byte, error) {
	if len(r.keepers) == 0 || r.plain {
		return secret, nil
	}
	w, err := r.wrap(ctx, secret)
	if err != nil {
		return nil, err
	}
	return w.Text()
}

func (r *ring) wrap(ctx context.Context, secret []byte) (kms.Wrapped, error) {
	k := r.keepers[0]
	w, err := k.Wrap(ctx, secret)
	if err != nil {
		return w, err
	}
	back, err := k.Unwrap(ctx, w)
	if err == nil && !bytes.Equal(back, secret) {
		err = fault.New(fault.Broken, kms.ReasonForeign, fmt.Errorf("%s gave another key back than it wrapped: ask its operator", k))
	}
	return w, err
}

// unwrapped opens a wrapped key with the service that wrapped it, or with any other one:
// a service may have got another name.
func (r *ring) unwrapped(ctx context.Context, name string, w kms.Wrapped) ([]byte, error) {
	if len(r.keepers) == 0 {
		return nil, fault.New(fault.Denied, ReasonKey, fmt.Errorf("the key of records %q is wrapped by %s: name that key with --records-kms", name, w.By))
	}
	var errs []error
	for _, exact := range []bool{true, false} {
		for _, k := range r.keepers {
			if (k.String() == w.By) != exact {
				continue
			}
			secret, err := k.Unwrap(ctx, w)
			if err == nil {
				return secret, nil
			}
			errs = append(errs, err)
		}
		if exact && len(errs) > 0 {
			break // another service cannot know better
		}
	}
	err := errors.Join(errs...)
	if fault.Reason(err, "") == kms.ReasonForeign {
		return nil, fault.New(fault.Denied, ReasonKey, fmt.Errorf("the key of records %q is wrapped by %s: name that key with --records-kms, or restore the Secret from a backup: %w", name, w.By, err))
	}
	return nil, fmt.Errorf("opening the key of records %q: %w", name, err)
}

// toBeMade reports whether an entry of the Secret asks for a new key: with a service for
// it, no user needs to see one.
func (r *ring) toBeMade(text []byte) bool { return len(r.keepers) > 0 && len(text) == 0 }

// wrapAll wraps the keys in the Secret that are plain, wrapped by another key or by an
// older version of it, or makes all of them plain again; and it makes those that are asked for. It uses the service each time,
// so that a right that was lost is noticed before a restart needs it.
func (r *ring) wrapAll(ctx context.Context) error {
	if len(r.keepers) == 0 || r.kept == nil {
		return nil
	}
	r.mu.Lock()
	newest := r.known[r.newest]
	r.mu.Unlock()
	if newest.secret == nil {
		return nil
	}
	var now kms.Wrapped // nothing, if keys become plain
	if !r.plain {
		var err error
		if now, err = r.wrap(ctx, newest.secret); err != nil {
			return fmt.Errorf("the keys of records stay in memory until this program ends: %w", err)
		}
	}
	reading, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	secret, err := r.kept.get(reading)
	if err != nil || secret == nil {
		return err
	}
	texts := named{}
	for name, text := range secret.Data {
		if w, ok := kms.Read(text); ok && w.By == now.By && w.Version == now.Version || r.plain && !ok && len(text) > 0 {
			continue
		}
		var plain []byte
		if r.toBeMade(text) {
			plain, err = newSecret()
		} else {
			var e entry
			e, err = r.open(ctx, name, text)
			plain = e.secret
		}
		if err == nil {
			texts[name], err = r.wrapped(ctx, plain)
		}
		if err != nil {
			return err
		}
	}
	if len(texts) == 0 {
		return nil
	}
	if err := r.kept.replace(ctx, secret, texts); err != nil {
		return err
	}
	_, err = r.reread(ctx)
	return err
}

// checkKMS reports values of --records-kms that cannot be.
func checkKMS(all []string, key string, environ func(string) string) error {
	if len(all) > 0 && key == string(keyInFile) {
		return usage("--records-kms wraps keys in a Secret, and --records-key=file keeps them in the data directory: remove one of them")
	}
	for _, text := range services(all) {
		if text == kmsPlain {
			return usage("--records-kms plain comes first: the keys after it unwrap those that are wrapped, and none wraps")
		}
		if _, err := kms.Parse(text, environ); err != nil {
			return usage("--records-kms %s: %w", strings.TrimSuffix(shown(text), "/"), err)
		}
	}
	return nil
}

// Package blob keeps what is too large or too secret for an object of the API:
// plans, states, logs, snapshots. A Store is keys and bytes; Files
// keeps them below a directory, package bucket in the object store of a cloud, and
// Seal puts encryption in front of any Store. Versions is a Store in which several
// processes change one value. There are no partial values: a Put that did not return
// leaves what was there before.
//
// It does not know what it keeps, and never overwrites in place. Start reading
// at Store; the suite in blobtest says what every Store must do.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Store keeps bytes by key. Implementations may be used by several goroutines.
type Store interface {
	// Put keeps all that r holds, in place of what was kept before. If r or
	// the context fails, nothing has changed.
	Put(ctx context.Context, key string, r io.Reader) error
	// Get opens a value. A key that is not there is Missing.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Delete removes a value. A key that is not there is no error.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with prefix, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Limits of a key. They fit file systems and object stores alike.
const (
	maxKey  = 900
	maxPart = 200
)

// CheckKey refuses what is not a key: parts of letters, digits, '.', '_' and
// '-' that do not begin with a dot, between single slashes.
func CheckKey(key string) error {
	if len(key) > maxKey {
		return keyFault(fmt.Errorf("the key of a blob has %d bytes, and %d are allowed", len(key), maxKey))
	}
	for part := range strings.SplitSeq(key, "/") {
		switch {
		case part == "":
			return keyFault(fmt.Errorf("the key %q has an empty part", key))
		case part[0] == '.':
			return keyFault(fmt.Errorf("the key %q has a part that begins with a dot", key))
		case len(part) > maxPart:
			return keyFault(fmt.Errorf("the key %q has a part of more than %d bytes", key, maxPart))
		case strings.ContainsFunc(part, func(r rune) bool { return !isKeyRune(r) }):
			return keyFault(fmt.Errorf("the key %q holds something other than letters, digits, '.', '_', '-' and '/'", key))
		}
	}
	return nil
}

// CheckPrefix is CheckKey for the beginning of keys.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

func isKeyRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

func keyFault(err error) error { return fault.New(fault.Invalid, "BlobKeyInvalid", err) }

// Missing is the error of reading a key that is not there.
func Missing(key string) error {
	return fault.New(fault.Missing, "BlobMissing", fmt.Errorf("there is no blob %s", key))
}

// Gone is the reason of the error of a store whose directory was removed.
const Gone = "BlobsGone"

func gone(dir string) error {
	return fault.New(fault.Later, Gone, fmt.Errorf("the directory %s, in which records are kept, is gone: restore it, or create it to continue without its content", dir))
}

// TooLarge is the reason of the error of a Put beyond a store's limit.
const TooLarge = "BlobTooLarge"

func tooLarge(limit int64) error {
	return fault.New(fault.Invalid, TooLarge, fmt.Errorf("it is larger than the limit of %d bytes", limit))
}

// Damaged is the reason of the error of reading a sealed value that was
// changed, cut off, or moved to another key.
const Damaged = "BlobDamaged"

func damaged(text string) error { return fault.New(fault.Broken, Damaged, errors.New(text)) }

// KeyUnknown is the reason of the error of reading a value that is sealed with a key
// that is not among those given. The value itself may be whole.
const KeyUnknown = "BlobKeyUnknown"

func keyUnknown(id keyID) error {
	return fault.New(fault.Later, KeyUnknown, fmt.Errorf("it is sealed with the key %s, which is not known here: restore that key", id))
}

// Bounded reads at most limit bytes of r, fails beyond them, and stops with its context.
func Bounded(ctx context.Context, r io.Reader, limit int64) io.Reader {
	return &bounded{ctx: ctx, r: r, left: limit, limit: limit}
}

type bounded struct {
	ctx   context.Context //nolint:containedctx // it is the context of the one call that reads
	r     io.Reader
	left  int64
	limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLarge(b.limit)
	}
	return n, err
}

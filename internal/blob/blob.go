// Package blob keeps what is too large or too secret for an object of the API:
// plans, states, logs, snapshots. A Store is keys and bytes; Files
// keeps them below a directory, and Seal puts encryption in front of any
// Store. There are no partial values: a Put that did not return leaves what was
// there before.
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

// checkKey refuses what is not a key: parts of letters, digits, '.', '_' and
// '-' that do not begin with a dot, between single slashes.
func checkKey(key string) error {
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

// checkPrefix is checkKey for the beginning of keys.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return checkKey(strings.TrimSuffix(prefix, "/"))
}

func isKeyRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

func keyFault(err error) error { return fault.New(fault.Invalid, "BlobKeyInvalid", err) }

func missing(key string) error {
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
// changed, cut off, moved to another key, or sealed with a key that is not
// known.
const Damaged = "BlobDamaged"

func damaged(text string) error { return fault.New(fault.Broken, Damaged, errors.New(text)) }

// bounded reads at most a limit, fails beyond it, and stops with its context.
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

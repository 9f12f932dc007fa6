package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
)

// spooled is content on the disk of this machine, until it is closed.
type spooled struct {
	*os.File
	size   int64
	sha256 string
}

// spool copies content to a file without a name, which the kernel removes with this
// process.
func (r *Registry) spool(ctx context.Context, what string, content io.Reader) (s *spooled, err error) {
	file, err := os.CreateTemp(r.o.Scratch, "upload-")
	if err != nil {
		return nil, fmt.Errorf("keeping an upload: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, fmt.Errorf("keeping an upload: %w", err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), blob.Bounded(ctx, content, r.o.MaxArchive))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return &spooled{file, n, hex.EncodeToString(sum.Sum(nil))}, nil
}

// content reads it from its beginning.
func (s *spooled) content() io.Reader { return io.NewSectionReader(s.File, 0, s.size) }

// put keeps content under a key that has none. It is false if there are other bytes.
func (r *Registry) put(ctx context.Context, key string, s *spooled) (bool, error) {
	_, err := r.store.Replace(ctx, key, blob.None, s.content())
	if fault.Reason(err, "") != blob.Changed {
		return err == nil, err
	}
	sum, err := r.sum(ctx, key)
	return sum == s.sha256, err
}

// sum is the SHA-256 of a value of the store, in hex.
func (r *Registry) sum(ctx context.Context, key string) (string, error) {
	v, err := r.store.Open(ctx, key)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, v)
	if err = errors.Join(err, v.Close()); err != nil {
		return "", fmt.Errorf("reading %s: %w", key, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// spooled is an upload on the disk of this machine, until it is closed.
type spooled struct {
	*room.File
	end func()
}

// Close gives back its room, and its place among the uploads of its namespace.
func (s *spooled) Close() error {
	defer s.end()
	return s.File.Close()
}

// mostUploads is how many uploads of one namespace one process takes at once.
const mostUploads = 32

// begin counts an upload of a namespace, until its end.
func (c *common) begin(namespace string) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uploads[namespace] >= mostUploads {
		return nil, fault.New(fault.Later, UploadsBusy, fmt.Errorf("%d uploads to the namespace %s go on: try again when one of them has ended", mostUploads, namespace))
	}
	c.uploads[namespace]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.uploads[namespace]--; c.uploads[namespace] == 0 {
			delete(c.uploads, namespace)
		}
	}, nil
}

// spool copies content of at most so many bytes to a file without a name. Content whose size is known gets its room at
// once, or is refused; a slow client does not hold it until its bytes arrive.
func (c *common) spool(ctx context.Context, namespace, what string, u Upload, most int64) (*spooled, error) {
	if u.Size > most {
		return nil, fault.New(fault.Invalid, blob.TooLarge, fmt.Errorf("%s is larger than the limit of %d bytes", what, most))
	}
	whole, err := c.o.Room.Claim(u.Size)
	if err != nil {
		return nil, err
	}
	whole.Close()
	end, err := c.begin(namespace)
	if err != nil {
		return nil, err
	}
	file, err := c.o.Room.Spool(ctx, c.o.Scratch, u.Content, most)
	if err != nil {
		end()
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return &spooled{file, end}, nil
}

// content reads it from its beginning.
func (s *spooled) content() io.Reader { return io.NewSectionReader(s.File, 0, s.Size) }

// put keeps content under a key that has none. It is false if there are other bytes.
func (c *common) put(ctx context.Context, key string, s *spooled) (bool, error) {
	for {
		_, err := c.store.Replace(ctx, key, blob.None, s.content())
		if fault.Reason(err, "") != blob.Changed {
			return err == nil, err
		}
		sum, err := c.sum(ctx, key)
		if fault.Of(err) != fault.Missing { // else another upload lost, and deleted its archive
			return sum == s.SHA256, err
		}
	}
}

// sum is the SHA-256 of a value of the store, in hex.
func (c *common) sum(ctx context.Context, key string) (string, error) {
	v, err := c.store.Open(ctx, key)
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

// whole reads a small value.
func (c *common) whole(ctx context.Context, key string, most int64) ([]byte, error) {
	v, err := c.store.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(blob.Bounded(ctx, v, most))
	if err = errors.Join(err, v.Close()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return b, nil
}

// putBytes is put for a small value.
func (c *common) putBytes(ctx context.Context, key string, content []byte) (bool, error) {
	_, err := c.store.Replace(ctx, key, blob.None, bytes.NewReader(content))
	if fault.Reason(err, "") != blob.Changed {
		return err == nil, err
	}
	there, err := c.whole(ctx, key, int64(len(content))+1)
	if fault.Reason(err, "") == blob.TooLarge {
		return false, nil
	}
	return bytes.Equal(there, content), err
}

// copy copies a value with a checksum to a key. Other bytes under that key are of an
// upload that was never published, since the signed list has another checksum.
func (c *common) copy(ctx context.Context, from, to, sum string) error {
	v, err := c.store.Open(ctx, from)
	if err != nil {
		return err
	}
	defer v.Close()
	_, err = c.store.Replace(ctx, to, blob.None, v)
	if fault.Reason(err, "") != blob.Changed {
		return err
	}
	if is, err := c.sum(ctx, to); err != nil || is == sum {
		return err
	}
	if _, err := v.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return c.store.Put(ctx, to, v)
}

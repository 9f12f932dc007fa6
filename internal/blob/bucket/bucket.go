// Package bucket keeps records in the object store of a cloud: S3 and servers that speak
// its protocol, Google Cloud Storage, and Azure Blob Storage.
//
// A value is one object, written by one request: an object store shows the old value or
// the new one, and never a part. The package retries requests, lists page by page, and
// says what is wrong with a bucket and how to fix it. It encrypts nothing, which is the
// task of blob.Seal, and it makes no bucket.
//
// Start reading at Store. What a URL may say is in place.go; what differs between the
// clouds is behind the interface service.
package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/failpoint"
)

// Store is a blob.Store in a bucket, with versions. Several processes may use one.
type Store struct {
	place    Place
	service  service
	limit    int64
	scratch  string
	versions bool // Check looks for what they need
	fence    func(context.Context) error
	close    func()
}

var _ blob.Versions = (*Store)(nil)

// service is one object store. Each call is one attempt. An error is as the service
// gave it, and diagnose says what it means.
type service interface {
	// put writes an object and returns its version. If old is not nil, the object must
	// have this version, or must not be there for blob.None.
	put(ctx context.Context, name string, content *content, old *blob.Version) (blob.Version, error)
	// get opens an object from an offset on. If version is not blob.None, the object
	// must have this version.
	get(ctx context.Context, name string, from int64, version blob.Version) (object, error)
	remove(ctx context.Context, name string) error
	list(ctx context.Context, prefix string, each func(name string)) error
	diagnose(err error) diagnosis
}

// Put implements blob.Store. The value is read to its end before a request is made, so
// that a reader that fails changes nothing.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	c, err := s.read(ctx, r)
	if err != nil {
		return fmt.Errorf("keeping blob %s: %w", key, err)
	}
	defer c.close()
	defer failpoint.Act("blob.put", key)()
	err = s.change(ctx, func(ctx context.Context) error {
		_, err := s.service.put(ctx, s.name(key), c, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("keeping blob %s: %w", key, err)
	}
	return nil
}

// Get implements blob.Store. A value that is replaced while it is read stays what it
// was, or reading it fails.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	v, err := s.open(ctx, key)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := errors.Join(blob.CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	defer failpoint.Act("blob.delete", key)()
	err := s.change(ctx, func(ctx context.Context) error { return s.service.remove(ctx, s.name(key)) })
	if err != nil && !errors.Is(err, errAbsent) {
		return fmt.Errorf("deleting blob %s: %w", key, err)
	}
	return nil
}

// List implements blob.Store. Objects whose names are no keys are not Terrier's, and
// are left out.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := errors.Join(blob.CheckPrefix(prefix), ctx.Err()); err != nil {
		return nil, err
	}
	var keys []string
	err := s.try(ctx, func(ctx context.Context) error {
		keys = nil
		return s.service.list(ctx, s.name(prefix), func(name string) {
			if key, ok := strings.CutPrefix(name, s.place.Prefix); ok && blob.CheckKey(key) == nil {
				keys = append(keys, key)
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listing blobs: %w", err)
	}
	slices.Sort(keys)
	return keys, nil
}

// Close gives connections back. Values that are open stay readable.
func (s *Store) Close() error {
	s.close()
	return nil
}

// String is the bucket as the flag names it.
func (s *Store) String() string { return s.place.String() }

func (s *Store) name(key string) string { return s.place.Prefix + key }

// checkWithin is how long the check of a bucket at the start may take.
const checkWithin = time.Minute

// Check writes an object, reads it, lists it and deletes it: a bucket that does not
// exist, or a right that is missing, is found before anything depends on it.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	// No key begins with a dot: it is in no list.
	name := s.name(".check-" + strings.ToLower(rand.Text()))
	empty := small(nil)
	for _, step := range []struct {
		doing string
		by    func(context.Context, func(context.Context) error) error
		do    func(context.Context) error
	}{
		{"writing an object", s.change, func(ctx context.Context) error {
			_, err := s.service.put(ctx, name, empty, nil)
			return err
		}},
		{"reading an object", s.try, func(ctx context.Context) error {
			o, err := s.service.get(ctx, name, 0, blob.None)
			if err != nil {
				return err
			}
			return o.body.Close()
		}},
		{"listing objects", s.try, func(ctx context.Context) error { return s.service.list(ctx, name, func(string) {}) }},
		{"deleting an object", s.change, func(ctx context.Context) error { return s.service.remove(ctx, name) }},
	} {
		if err := step.by(ctx, step.do); err != nil {
			return fmt.Errorf("checking %s %s: %s: %w", s.place.flag, s.place, step.doing, err)
		}
	}
	if s.versions {
		if err := s.checkVersions(ctx, name); err != nil {
			return fmt.Errorf("checking %s %s: replacing an object: %w", s.place.flag, s.place, err)
		}
	}
	return nil
}

// How often a request is made, and how long the first pause is; each further one is
// twice as long.
const (
	attempts   = 4
	firstPause = 200 * time.Millisecond
)

// try makes an attempt, and others if the failure may be over by then. Its error says
// how to go on. An attempt ends by itself when the service is silent.
func (s *Store) try(ctx context.Context, attempt func(context.Context) error) error {
	return s.attempts(ctx, func(context.Context) error { return nil }, attempt)
}

// change is try for attempts that change an object. Each of them is made only if the fence
// lets it through: during a pause another process may have taken this one's place.
func (s *Store) change(ctx context.Context, attempt func(context.Context) error) error {
	return s.attempts(ctx, s.fence, attempt)
}

func (s *Store) attempts(ctx context.Context, may, attempt func(context.Context) error) error {
	pause := firstPause
	var before error // of the last attempt
	for left := attempts - 1; ; left-- {
		if refused := may(ctx); refused != nil {
			return errors.Join(refused, before)
		}
		err := attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		found := s.service.diagnose(err)
		before = found.fault(err, s.place)
		if left == 0 || !found.passing() {
			return before
		}
		if err := wait(ctx, &pause, err); err != nil {
			return err
		}
	}
}

// wait waits before another attempt, and doubles the pause for the next one.
func wait(ctx context.Context, pause *time.Duration, failed error) error {
	select {
	case <-time.After(*pause/2 + mathrand.N(*pause)):
		*pause *= 2
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), failed)
	}
}

// content is a value that is about to be written.
type content struct {
	io.ReadSeeker
	size   int64
	sha256 string // in hex
	file   *os.File
}

func (c *content) close() {
	if c.file != nil {
		_ = c.file.Close() // it has no name any more: nothing reads it again
	}
}

// small is a value in memory.
func small(b []byte) *content {
	sum := sha256.Sum256(b)
	return &content{ReadSeeker: bytes.NewReader(b), size: int64(len(b)), sha256: hex.EncodeToString(sum[:])}
}

// inMemory is the size up to which a value waits in memory and not in a file.
const inMemory = 1 << 20

// read reads a value to its end. What is in a file has no name there, so that it is
// gone with the process.
func (s *Store) read(ctx context.Context, r io.Reader) (*content, error) {
	sum := sha256.New()
	r = io.TeeReader(blob.Bounded(ctx, r, s.limit), sum)
	var head bytes.Buffer
	_, err := io.CopyN(&head, r, inMemory)
	if errors.Is(err, io.EOF) {
		return small(head.Bytes()), nil
	}
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(s.scratch, "record-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	more, err := io.Copy(file, io.MultiReader(&head, r))
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &content{ReadSeeker: file, size: more, sha256: hex.EncodeToString(sum.Sum(nil)), file: file}, nil
}

// rewound is the value from its beginning, for one attempt. Libraries close what they
// send, which must not close the value.
func (c *content) rewound() (io.ReadSeekCloser, error) {
	_, err := c.Seek(0, io.SeekStart)
	return unclosed{c.ReadSeeker}, err
}

type unclosed struct{ io.ReadSeeker }

func (unclosed) Close() error { return nil }

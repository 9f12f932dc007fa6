package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
)

// object is an object that a service has opened, from an offset on.
type object struct {
	body     io.ReadCloser
	version  blob.Version
	size     int64 // of what the body holds
	modified time.Time
	part     string // which part of the object the body is, as in Content-Range
}

// Open implements blob.Versions.
func (s *Store) Open(ctx context.Context, key string) (blob.Value, error) {
	v, err := s.open(ctx, key)
	if err == nil && v.first.version == blob.None {
		err = errors.Join(fmt.Errorf("opening blob %s: %w", key, unconditional(s.place, errors.New("it tells no version of an object"))), v.Close())
	}
	if err != nil {
		return blob.Value{}, err
	}
	return blob.Value{ReadSeekCloser: v, Version: v.first.version, Size: v.first.size, Modified: v.first.modified}, nil
}

// value is an object that is being read. What the service breaks off is fetched again
// from there on, as long as it is the same object.
type value struct {
	ctx   context.Context //nolint:containedctx // it is the context of the call that opened it
	end   context.CancelFunc
	store *Store
	key   string
	first object // as it was opened

	at   int64         // where the next Read reads
	body io.ReadCloser // nil if there is none
	from int64         // where the body is
}

func (s *Store) open(ctx context.Context, key string) (*value, error) {
	if err := errors.Join(blob.CheckKey(key), ctx.Err()); err != nil {
		return nil, err
	}
	reading, cancel := context.WithCancel(ctx)
	v := &value{ctx: reading, end: cancel, store: s, key: key}
	err := v.fetch(0, blob.None, &v.first)
	if err == nil && v.first.size < 0 {
		err = errors.Join(errors.New("the service does not tell its size"), v.body.Close())
	}
	if err == nil {
		return v, nil
	}
	cancel()
	if errors.Is(err, errAbsent) {
		return nil, blob.Missing(key)
	}
	return nil, fmt.Errorf("opening blob %s: %w", key, err)
}

// fetch opens the object at an offset.
func (v *value) fetch(from int64, version blob.Version, o *object) error {
	return v.store.try(v.ctx, func(ctx context.Context) (err error) {
		if *o, err = v.store.service.get(ctx, v.store.name(v.key), from, version); err != nil {
			return err
		}
		if from > 0 && !strings.HasPrefix(o.part, fmt.Sprintf("bytes %d-", from)) {
			return errors.Join(fmt.Errorf("the service was asked for the bytes from %d on, and sent %q", from, o.part), o.body.Close())
		}
		v.body, v.from = o.body, from
		return nil
	})
}

// again opens the object where the next Read reads.
func (v *value) again() error {
	var o object
	err := v.fetch(v.at, v.first.version, &o)
	if errors.Is(err, errAbsent) || err == nil && o.version != v.first.version {
		err = errors.Join(blob.Conflict(), v.drop())
	}
	return err
}

// Read implements io.Reader.
func (v *value) Read(p []byte) (int, error) {
	if v.at >= v.first.size {
		return 0, io.EOF
	}
	pause := firstPause
	for left := attempts - 1; ; left-- {
		n, err := v.read(p[:min(int64(len(p)), v.first.size-v.at)])
		if n > 0 || err == nil {
			return n, nil // an error comes back with the next Read
		}
		_ = v.drop() // it is broken
		if left == 0 && fault.Of(err) == fault.Broken {
			err = v.store.service.diagnose(err).fault(err, v.store.place)
		}
		if v.ctx.Err() != nil || fault.Of(err) != fault.Broken {
			return 0, fmt.Errorf("reading blob %s: %w", v.key, err)
		}
		if err := wait(v.ctx, &pause, err); err != nil {
			return 0, fmt.Errorf("reading blob %s: %w", v.key, err)
		}
	}
}

func (v *value) read(p []byte) (int, error) {
	if v.body != nil && v.from != v.at {
		_ = v.drop() // it is not read to its end
	}
	if v.body == nil {
		if err := v.again(); err != nil {
			return 0, err
		}
	}
	n, err := v.body.Read(p)
	v.at, v.from = v.at+int64(n), v.from+int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // before the end of the object, or after it has all been read
	}
	return n, err
}

// Seek implements io.Seeker.
func (v *value) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += v.at
	case io.SeekEnd:
		offset += v.first.size
	default:
		return v.at, fmt.Errorf("seeking in blob %s: %d is no place to seek from", v.key, whence)
	}
	if offset < 0 {
		return v.at, fmt.Errorf("seeking in blob %s: %d is before its beginning", v.key, offset)
	}
	v.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (v *value) Close() error {
	defer v.end()
	return v.drop()
}

// drop closes the body, if there is one.
func (v *value) drop() error {
	if v.body == nil {
		return nil
	}
	body := v.body
	v.body = nil
	return body.Close()
}

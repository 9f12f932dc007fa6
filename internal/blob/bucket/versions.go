package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Replace implements blob.Versions.
func (s *Store) Replace(ctx context.Context, key string, old blob.Version, r io.Reader) (blob.Version, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.None, err
	}
	c, err := s.read(ctx, r)
	if err != nil {
		return blob.None, fmt.Errorf("keeping blob %s: %w", key, err)
	}
	defer c.close()
	defer failpoint.Act("blob.put", key)()
	var now blob.Version
	if c.file != nil {
		err = s.expect(ctx, s.name(key), old) // else it would all be sent for nothing
	}
	if err == nil {
		now, err = s.replace(ctx, s.name(key), old, c)
	}
	if errors.Is(err, errAbsent) {
		err = blob.Conflict() // there is no value with the version old
	}
	if err == nil && now == blob.None {
		err = unconditional(s.place, errors.New("it tells no version of an object"))
	}
	if err != nil {
		return blob.None, fmt.Errorf("keeping blob %s: %w", key, err)
	}
	return now, nil
}

// expect returns a conflict if an object has another version.
func (s *Store) expect(ctx context.Context, name string, version blob.Version) error {
	is := blob.None
	err := s.try(ctx, func(ctx context.Context) error {
		o, err := s.service.get(ctx, name, 0, blob.None)
		if err != nil {
			return err
		}
		is = o.version
		return o.body.Close()
	})
	if errors.Is(err, errAbsent) {
		err = nil
	}
	if err == nil && is != version {
		err = blob.Conflict()
	}
	return err
}

// replace writes an object in place of a version. If the answer to an attempt was lost,
// the next attempt may find the object that the first one has written.
func (s *Store) replace(ctx context.Context, name string, old blob.Version, c *content) (now blob.Version, err error) {
	var lost bool
	var refused error
	err = s.change(ctx, func(ctx context.Context) (err error) {
		now, err = s.service.put(ctx, name, c, &old)
		if err == nil {
			return nil
		}
		found := s.service.diagnose(err)
		if lost && found.trouble == cloud.Changed {
			var is error
			if now, is = s.holds(ctx, name, c); is != nil {
				return is
			}
			if now != blob.None {
				return nil
			}
		}
		lost = lost || found.passing()
		if found.trouble == cloud.Unknowing {
			refused = fmt.Errorf("it refuses the request: %w", brief{err})
		}
		return err
	})
	if refused != nil {
		err = unconditional(s.place, refused)
	}
	return now, err
}

// holds returns the version of an object if its content is c, and blob.None if it is not.
func (s *Store) holds(ctx context.Context, name string, c *content) (blob.Version, error) {
	o, err := s.service.get(ctx, name, 0, blob.None)
	if err != nil {
		if s.service.diagnose(err).trouble == cloud.Absent {
			return blob.None, nil
		}
		return blob.None, err
	}
	defer o.body.Close()
	if o.size != c.size {
		return blob.None, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, o.body); err != nil {
		return blob.None, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != c.sha256 {
		return blob.None, nil
	}
	return o.version, nil
}

// unconditional is the error of a service that cannot keep versions.
func unconditional(at Place, why error) error {
	return fault.New(fault.Later, ReasonVersions, fmt.Errorf("%s does not support conditional writes, without which one process overwrites what another wrote: %w: update the server, or use another one", at.Endpoint.Host, why))
}

// checkVersions makes an object and checks that the service looks at versions: one that
// is there is not made, and one of another version is not replaced.
func (s *Store) checkVersions(ctx context.Context, name string) error {
	err := s.looksAtVersions(ctx, name)
	return errors.Join(err, s.change(ctx, func(ctx context.Context) error { return s.service.remove(ctx, name) }))
}

func (s *Store) looksAtVersions(ctx context.Context, name string) error {
	first, err := s.replace(ctx, name, blob.None, small([]byte("1")))
	if err != nil {
		return err
	}
	second, err := s.replace(ctx, name, first, small([]byte("2")))
	if err != nil {
		return err
	}
	for _, old := range []blob.Version{blob.None, first} {
		_, err := s.replace(ctx, name, old, small([]byte("3")))
		if err == nil || first == second {
			return unconditional(s.place, errors.New("it ignores the condition of a write"))
		}
		if fault.Reason(err, "") != blob.Changed {
			return err
		}
	}
	return nil
}

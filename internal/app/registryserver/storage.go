package registryserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/rights"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Storage says where a registry keeps everything that is published.
type Storage struct {
	Dir     string // of files; empty for a bucket
	Bucket  string // URL
	Scratch string // a directory for what is on its way to a bucket
	Allow   []string
	Environ func(string) string
	Flag    string // that names the storage, for messages
}

// valueBytes bounds one value of the storage. Registry and mirror have lower bounds.
const valueBytes = 4 << 30

// Open opens the storage, and fails if it does not answer.
func (s Storage) Open(ctx context.Context) (store blob.Versions, closer io.Closer, err error) {
	if s.Bucket == "" {
		f, err := blob.OpenVersionedFiles(s.Dir, valueBytes)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the storage: %w", err)
		}
		return f, f, nil
	}
	place, err := bucket.Parse(s.Bucket, s.Environ)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(s.Scratch, 0o700); err != nil {
		return nil, nil, err
	}
	b, err := bucket.Open(place, bucket.Options{Limit: valueBytes, Scratch: s.Scratch, Environ: s.Environ, Allow: s.Allow, Flag: s.Flag})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the storage: %w", err)
	}
	return b, b, nil
}

// archiveKey is the key of the key that signs addresses of archives. It is beside them:
// who reads the storage needs no address.
const archiveKey = "index/keys/archives"

// signingKey returns the key that signs addresses of archives: that of a file, else that of
// the storage, so that replicas have the same one. A storage that this server may not
// write has none, and it is in the data directory.
func (s *server) signingKey(ctx context.Context, store blob.Versions) (secret.Text, error) {
	if file := s.Config.ArchiveKey; file != "" {
		key, err := rights.KeyFile(file)
		if err != nil {
			return key, usage("--archive-key-file: %w", err)
		}
		return key, nil
	}
	key, err := storedKey(ctx, store)
	if fault.Of(err) == fault.Missing {
		made := rights.NewKey()
		_, err = store.Replace(ctx, archiveKey, blob.None, bytes.NewReader([]byte(made.Reveal())))
		switch {
		case fault.Reason(err, "") == blob.Changed: // another replica was faster
			return storedKey(ctx, store)
		case fault.Of(err) == fault.Denied:
			s.log.Warn("storage cannot be written: replicas need the same --archive-key-file, and nothing can be published", "err", err)
			return rights.KeyFile(s.Config.dir("secrets", "archives"))
		}
		key = made
	}
	if err != nil {
		return secret.Text{}, fmt.Errorf("reading the key of archives: %w", err)
	}
	return key, nil
}

func storedKey(ctx context.Context, store blob.Versions) (secret.Text, error) {
	v, err := store.Open(ctx, archiveKey)
	if err != nil {
		return secret.Text{}, err
	}
	text, err := io.ReadAll(io.LimitReader(v, 1<<10))
	if err = errors.Join(err, v.Close()); err != nil {
		return secret.Text{}, err
	}
	return rights.ParseKey(text)
}

// firstRights makes a file of rights, and a token for everything, unless there is a file.
// It returns the path of the token if it exists.
func firstRights(file, tokenFile string) (string, error) {
	if _, err := os.Stat(file); err == nil {
		if _, err := os.Stat(tokenFile); err != nil {
			return "", nil //nolint:nilerr // the operator has removed it
		}
		return tokenFile, nil
	}
	if _, err := rights.KeyFile(tokenFile); err != nil {
		return "", err
	}
	text := "# Which tokens may read and write which namespaces. It is read again when it changes.\n" +
		"tokens:\n" +
		"  - name: admin\n" +
		"    tokenFile: " + adminToken + "\n" +
		"    write: [\"*\"] # includes reading\n"
	return tokenFile, os.WriteFile(file, []byte(text), 0o600)
}

// adminToken is the name of the file with the first token, in the data directory.
const adminToken = "admin-token"

package disk

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

// Incoming is a file that was received beside the one that it is to replace.
type Incoming struct {
	tmp, path string
	sum       hash.Hash
}

// Receive writes what r gives beside the file of a name, and makes it durable there.
// Several may be received at the same time.
func Receive(dir, name string, r io.Reader) (*Incoming, error) {
	f, err := os.CreateTemp(dir, name+".*.tmp")
	if err != nil {
		return nil, err
	}
	in := &Incoming{tmp: f.Name(), path: filepath.Join(dir, name), sum: sha256.New()}
	_, err = io.Copy(io.MultiWriter(f, in.sum), r)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		in.Drop()
		return nil, err
	}
	return in, nil
}

// Digest is the one of the content: sha256:….
func (in *Incoming) Digest() string { return fmt.Sprintf("sha256:%x", in.sum.Sum(nil)) }

// Keep puts the file in its place, as Write does.
func (in *Incoming) Keep() error {
	defer failpoint.Act("run.file", filepath.Base(in.path))()
	if err := os.Rename(in.tmp, in.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(in.path))
}

// Drop removes the file unless it was kept.
func (in *Incoming) Drop() { _ = os.Remove(in.tmp) }

// Append adds data to the file at path, which has size bytes. After an error it has as
// many again. The data is not durable before Sync.
func Append(path string, data []byte, size int64) error {
	defer failpoint.Act("run.append", filepath.Base(path))()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, size); err != nil {
		err = errors.Join(err, f.Truncate(size))
	}
	return errors.Join(err, f.Close())
}

// Sync makes the content of a file durable; one that is not there is.
func Sync(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Digest is that of the content of a file: sha256:….
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

// Share makes the file at path the same as another one, which may be removed
// afterwards. The two are one file where the file system allows it.
func Share(of, path string) error {
	if err := os.Link(of, path); err == nil {
		return nil
	}
	in, err := os.Open(of)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

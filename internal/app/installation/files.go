package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// files reads the secrets of the data directory. It makes those that are missing if
// create is set, and leaves them out otherwise.
func (o Options) files(create bool) (texts, error) {
	t := texts{}
	for _, name := range []string{digests, runs, authority} {
		text, err := o.file(name, create)
		if err != nil {
			return nil, err
		}
		if text != nil {
			t[name] = text
		}
	}
	return t, nil
}

// elsewhere refuses a data directory whose keys were in the Secret from the beginning.
func (o Options) elsewhere() error {
	key, err := o.file(digests, false)
	if err != nil || key != nil {
		return err
	}
	of, err := Of(o.Dir)
	if err != nil || of == "" {
		return err
	}
	return fault.New(fault.Denied, ReasonLost, fmt.Errorf(
		"the data directory %s belongs to the installation %s, whose keys are not in it: take them from the Secret %s with --installation-keys=secret, or restore %s; if they are lost for good, delete %s",
		o.Dir, of, SecretName, filepath.Join(o.Dir, "secrets"), filepath.Join(o.Dir, markFile)))
}

// file reads one secret. With create, an authority that ends soon gets a successor.
func (o Options) file(name string, create bool) ([]byte, error) {
	path := filepath.Join(o.Dir, "secrets", name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !create {
			return nil, nil
		}
	case err != nil:
		return nil, err
	default:
		if err := whole(name, text); err != nil {
			return nil, fault.New(fault.Broken, ReasonLost, fmt.Errorf("the secret %s is damaged: restore it, or delete it; %s: %w", path, lossOf[name], err))
		}
		if !create || name != authority {
			return text, nil
		}
		next, err := succeeded(text, o.Now())
		if err != nil || next == nil {
			return text, err
		}
		o.sayRenewed(text, next)
		return next, writeFile(path, next, 0o600)
	}
	if text, err = made(name, o.Now()); err != nil {
		return nil, err
	}
	return text, writeFile(path, text, 0o600)
}

// lossOf says what the loss of a secret means.
var lossOf = map[string]string{
	digests:   "without it all users sign in again, and all stacks are planned again",
	runs:      "without it the controller does not know the pods of runs that go on",
	authority: "without it pods of runs that go on do not reach their controller",
}

// writeFile replaces a file as a whole.
func writeFile(path string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	partial := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// markFile is the name of the file below the data directory that names its installation.
const markFile = "installation"

// Mark writes into the data directory to which installation it belongs.
func (k *Keys) Mark(dir string) error {
	return writeFile(filepath.Join(dir, markFile), []byte(k.ID()+"\n"), 0o600)
}

// Of returns the installation that a data directory belongs to, and "" for a new one.
// Earlier releases left no mark, but a key.
func Of(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, markFile))
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	key, err := Options{Dir: dir}.file(digests, false)
	if err != nil || key == nil {
		return "", err
	}
	return idOf(string(key)), nil
}

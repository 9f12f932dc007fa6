package origin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

// FileOptions say where the file of repositories is.
type FileOptions struct {
	Path       string
	KnownHosts string // the file of the operator with keys of ssh hosts; may be empty
	Now        func() time.Time
	Log        *slog.Logger
}

// File is the file of repositories of a registry without Kubernetes. It is read again when it
// changes, and a change that makes it invalid changes nothing.
type File struct {
	o FileOptions

	mu    sync.Mutex
	read  time.Time
	text  []byte
	said  string // the last failure
	valid []Repository
}

// entry is one repository of the file.
type entry struct {
	Name        string          `json:"name"`
	URL         string          `json:"url"`
	Module      string          `json:"module"` // NAMESPACE/NAME/SYSTEM
	Tags        string          `json:"tags"`
	Directory   string          `json:"directory"`
	Interval    mirror.Duration `json:"interval"`
	Timeout     mirror.Duration `json:"timeout"`
	Credentials string          `json:"credentials"` // a directory with the files that a Secret of Flux has
	Verify      *verifyEntry    `json:"verify"`
	Webhook     string          `json:"webhookSecretFile"`
	Suspend     bool            `json:"suspend"`
	Requested   string          `json:"requested"`
}

type verifyEntry struct {
	Mode string `json:"mode"`
	Keys string `json:"keys"` // a directory with public keys
}

// fileBytes bounds the file, and each file that it names.
const fileBytes = 4 << 20

// OpenFile reads the file of repositories.
func OpenFile(o FileOptions) (*File, error) {
	f := &File{o: o}
	text, err := bounded(o.Path)
	if err == nil {
		f.valid, err = f.parse(text)
	}
	if err != nil {
		return nil, err
	}
	f.text, f.read = text, o.Now()
	return f, nil
}

// Repositories implements Source.
func (f *File) Repositories(context.Context) ([]Repository, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.o.Now(); now.Sub(f.read) >= time.Second {
		f.read = now
		f.again()
	}
	return slices.Clone(f.valid), nil
}

func (f *File) again() {
	text, err := bounded(f.o.Path)
	if err == nil && bytes.Equal(text, f.text) {
		return
	}
	var now []Repository
	if err == nil {
		f.text = text
		now, err = f.parse(text)
	}
	if err != nil {
		if err.Error() != f.said {
			f.said = err.Error()
			f.o.Log.Error("repositories not changed: the file is invalid", "err", err)
		}
		return
	}
	f.said, f.valid = "", now
	f.o.Log.Info("repositories changed", "repositories", len(now))
}

func (f *File) parse(text []byte) ([]Repository, error) {
	var document struct {
		Repositories []entry `json:"repositories"`
	}
	if err := yaml.UnmarshalStrict(text, &document); err != nil {
		return nil, invalid("the file of repositories %s: %s", f.o.Path, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "))
	}
	var all []Repository
	for i, e := range document.Repositories {
		r, err := f.repository(e)
		if err == nil && slices.ContainsFunc(all, func(o Repository) bool { return o.Key == r.Key }) {
			err = errors.New("another repository of the namespace has the same name")
		}
		if err != nil {
			return nil, invalid("the file of repositories %s, repository %s: %w", f.o.Path, cmp.Or(e.Name, fmt.Sprintf("number %d", i+1)), err)
		}
		all = append(all, r)
	}
	return all, nil
}

var entryName = regexp.MustCompile(`^[0-9a-z]([0-9a-z.-]{0,98}[0-9a-z])?$`)

func (f *File) repository(e entry) (Repository, error) {
	namespace, _, _ := strings.Cut(e.Module, "/")
	r := Repository{
		Key: Key{namespace, e.Name}, URL: e.URL, Module: e.Module, Tags: e.Tags, Directory: e.Directory,
		Interval: time.Duration(e.Interval), Timeout: time.Duration(e.Timeout), Suspended: e.Suspend, Requested: e.Requested,
	}
	switch {
	case !entryName.MatchString(e.Name):
		return r, errors.New("name is missing, or has other characters than lower-case letters, digits, dots and dashes")
	case e.URL == "":
		return r, errors.New("url is missing: the repository, as https://… or ssh://…")
	case strings.Count(e.Module, "/") != 2:
		return r, fmt.Errorf("module %.200q: write NAMESPACE/NAME/SYSTEM", e.Module)
	case e.Interval < 0 || e.Timeout < 0:
		return r, errors.New("interval and timeout cannot be negative")
	}
	var keys string
	if v := e.Verify; v != nil {
		if r.Mode, keys = v.Mode, f.beside(v.Keys); r.Mode == "" {
			return r, errors.New("verify.mode is missing: Tag for the signature of the tag, or TagAndHEAD for that of the commit, too")
		}
		if keys == "" {
			return r, errors.New("verify.keys is missing: a directory with public keys, each as gpg --armor --export prints it")
		}
	}
	credentials := f.beside(e.Credentials)
	r.Access = func(context.Context) (a Access, err error) {
		if a.KnownHosts, err = source.ReadKnownHosts(f.o.KnownHosts); err != nil {
			return a, err
		}
		data, err := directory("credentials", credentials)
		if err != nil {
			return a, err
		}
		a.Auth = source.GitAuthFrom(data)
		a.Keys, err = directory("verify.keys", keys)
		return a, err
	}
	if file := f.beside(e.Webhook); file != "" {
		r.Secret = func(context.Context) (secret.Text, error) {
			text, err := bounded(file)
			if err != nil {
				return secret.Text{}, fmt.Errorf("reading webhookSecretFile: %w", err)
			}
			return secret.New(string(text)), nil
		}
	}
	return r, r.Check()
}

// beside is a path relative to the directory of the file.
func (f *File) beside(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(f.o.Path), name)
}

// directory reads the files of a directory, as a Secret is mounted: other files begin with a
// dot.
func directory(what, dir string) (map[string][]byte, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonSettings, fmt.Errorf("reading %s: %w", what, err))
	}
	data := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		if data[e.Name()], err = bounded(filepath.Join(dir, e.Name())); err != nil {
			return nil, fault.New(fault.Invalid, ReasonSettings, fmt.Errorf("reading %s: %w", what, err))
		}
	}
	return data, nil
}

func bounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileBytes+1))
	if err == nil && len(b) > fileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, fileBytes)
	}
	return b, err
}

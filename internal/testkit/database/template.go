package database

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// nobodyID is the id of the user that servers run as if the test runs as root, which
// they refuse.
const nobodyID = 65534

// servant is that user, or nil for ourselves.
func servant() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: nobodyID, Gid: nobodyID}
}

// own gives a tree to the user that the server runs as.
func own(dir string) error {
	who := servant()
	if who == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(who.Uid), int(who.Gid))
	})
}

// edition counts the ways in which templates were made.
const edition = "3"

// template returns an empty data directory to copy, which is made once for each
// version of a server and stays below bin until make clean.
func template(ctx context.Context, e engine) (string, error) {
	version, err := e.version(ctx)
	if err != nil {
		return "", err
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	ready := filepath.Join(root, "bin", "databases", strings.Map(plain, version)+"-"+edition)
	if _, err := os.Stat(ready); err == nil {
		return ready, nil
	}
	fresh, err := os.MkdirTemp("", "database-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := own(fresh); err != nil {
		return "", err
	}
	if err := e.prepare(ctx, filepath.Join(fresh, "data")); err != nil {
		return "", err
	}
	// Another process may be as far: the first that renames wins.
	if err := os.MkdirAll(filepath.Dir(ready), 0o755); err != nil {
		return "", err
	}
	beside, err := os.MkdirTemp(filepath.Dir(ready), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(beside)
	if err := clone(filepath.Join(fresh, "data"), filepath.Join(beside, "data")); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(beside, "data"), ready); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return ready, nil
}

func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
		return r
	}
	return '-'
}

// clone copies a tree of files and directories.
func clone(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rest), 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rest), content, 0o600)
	})
}

// repository is the root of the one that the test runs in.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "internal", "testkit", "database")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("the test does not run inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// helper runs a program to its end as the servers' user.
func helper(ctx context.Context, dir string, stdin []byte, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	var output bytes.Buffer
	command.Dir, command.Stdin, command.Stdout, command.Stderr = dir, bytes.NewReader(stdin), &output, &output
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: servant()}
	if err := command.Run(); err != nil {
		return fmt.Errorf("running %s: %w: %s", filepath.Base(program), err, output.String())
	}
	return nil
}

// versionOf asks a program for its version.
func versionOf(ctx context.Context, program string) (string, error) {
	output, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", program, err)
	}
	return strings.TrimSpace(string(output)), nil
}

// find returns the first of some files that is there.
func find(patterns ...string) (string, error) {
	for _, pattern := range patterns {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("none of %s is there", strings.Join(patterns, ", "))
}

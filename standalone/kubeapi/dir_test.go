package kubeapi

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestOpenDirRefusesWhatIsNotItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"open to its group":    {func(p string) error { return mkdir(p, 0o750) }, "chmod 700"},
		"open to all":          {func(p string) error { return mkdir(p, 0o755) }, "chmod 700"},
		"searchable by others": {func(p string) error { return mkdir(p, 0o701) }, "chmod 700"},
		"a link":               {func(p string) error { return os.Symlink(filepath.Dir(p), p) }, "symbolic link"},
		"a file":               {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "not a directory"},
		"of another user": {func(p string) error {
			return errors.Join(mkdir(p, 0o700), os.Chown(p, 65534, 65534))
		}, "belongs to the user with id 65534"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data")
			if err := c.make(path); errors.Is(err, os.ErrPermission) {
				t.Skip("only root can give a directory away")
			} else if err != nil {
				t.Fatal(err)
			}
			_, err := openDir(path)
			if fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("openDir() = %v, want denied: … %s", err, c.want)
			}
		})
	}
}

func mkdir(path string, mode os.FileMode) error {
	return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)) // whatever the umask
}

func TestOpenDirMakesItPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parent", "data")
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{filepath.Dir(path), path, d.own(), d.own("pki")} {
		info, err := os.Stat(made)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o700 {
			t.Errorf("%s has mode %04o, want 0700", made, got)
		}
	}
	if _, err := openDir(path); fault.Of(err) != fault.Conflict {
		t.Errorf("openDir() while it is open = %v, want a conflict", err)
	}
	d.close()
	again, err := openDir(path)
	if err != nil {
		t.Fatalf("openDir() after it was closed = %v", err)
	}
	// A process that was killed may still have it for a moment.
	go again.close()
	next, err := openDir(path)
	if err != nil {
		t.Fatalf("openDir() while it is let go of = %v", err)
	}
	next.close()
}

func TestParseLoopback(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:0":           "127.0.0.1:0",
		"localhost:6443":        "127.0.0.1:6443",
		"[::1]:6443":            "[::1]:6443",
		"127.0.0.2:1":           "127.0.0.2:1",
		"0.0.0.0:6443":          "",
		":6443":                 "",
		"[::]:6443":             "",
		"10.0.0.1:6443":         "",
		"example.com:6443":      "",
		"[::ffff:127.0.0.1]:80": "",
		"127.0.0.1":             "",
		"127.0.0.1:http":        "",
		"127.0.0.1:65536":       "",
	} {
		t.Run(address, func(t *testing.T) {
			got, err := parseLoopback(address)
			switch {
			case want == "" && fault.Of(err) != fault.Invalid:
				t.Errorf("parseLoopback() = %v, %v, want it to be invalid", got, err)
			case want != "" && got.String() != want:
				t.Errorf("parseLoopback() = %v, %v, want %s", got, err, want)
			}
		})
	}
}

func TestListenRefusesATakenAddress(t *testing.T) {
	d, err := openDir(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = listen(d, taken.Addr().String(), Options{}.withDefaults().Log)
	if fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("listen() = %v, want a conflict that names %s", err, taken.Addr())
	}
}

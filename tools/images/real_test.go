package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
)

// enterVariable holds the root that this program enters, in place of testing.
const enterVariable = "TERRIER_IMAGES_ENTER"

func TestMain(m *testing.M) {
	if root := os.Getenv(enterVariable); root != "" {
		fmt.Fprintln(os.Stderr, "entering", root+":", enter(root, os.Args[1:]))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// TestReal looks at the images that make images wrote.
func TestReal(t *testing.T) {
	out := os.Getenv("TERRIER_IMAGES")
	if out == "" {
		t.Skip("make test-images builds images and says where they are")
	}
	here := "linux/" + runtime.GOARCH
	roots := map[string]string{}
	for _, r := range recipes {
		image := images(t, filepath.Join(out, r.name))[here]
		if image == nil {
			t.Fatalf("%s has no image of %s", r.name, here)
		}
		checkSafety(t, image)
		checkConfiguration(t, r, image)
		checkSBOM(t, out, r.name, filepath.Join("../../bin/images", "linux_"+runtime.GOARCH), "debian.lock")
		if os.Geteuid() == 0 {
			roots[r.name] = extract(t, image)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("programs run in the images only where this test is root")
	}
	for _, c := range []struct {
		name, image string
		args        []string
		want        string
	}{
		{"terrier", "terrier", []string{"/usr/local/bin/terrier", "version"}, "v"},
		{"terrier-runner", "terrier-runner", []string{"/usr/local/bin/terrier-runner", "version"}, "v"},
		{"terrier-backend", "terrier-runner", []string{"/usr/local/bin/terrier-backend", "version"}, "v"},
		{"the engine", "terrier-runner", []string{"/usr/local/bin/tofu", "version"}, "OpenTofu v1."},
		{"git", "terrier-runner", []string{"/usr/bin/git", "--version"}, "git version 2."},
		{"ssh", "terrier-runner", []string{"/usr/bin/ssh", "-V"}, "OpenSSH"},
		{"the root is read-only", "terrier-runner", []string{"/usr/bin/sh", "-c", "echo x >/usr/x || echo x >/etc/x || echo refused"}, "refused"},
		{"the data directory and /tmp are not", "terrier", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.args == nil {
				c.image, c.args, c.want = "terrier-runner", []string{"/usr/bin/sh", "-c", "echo x >/tmp/x && echo x >/var/lib/terrier/x && echo written"}, "written"
			}
			if got := inside(t, roots[c.image], nil, c.args...); !strings.Contains(got, c.want) {
				t.Errorf("%q says %q, want %q", c.args, got, c.want)
			}
		})
	}
	t.Run("modules over https", func(t *testing.T) { modulesOverHTTPS(t, roots["terrier-runner"]) })
}

// modulesOverHTTPS lets git, and the engine with it, get a module with a submodule from a
// server with a certificate of its own authority.
func modulesOverHTTPS(t *testing.T, root string) {
	repositories := t.TempDir()
	for _, name := range []string{"sub", "module"} {
		dir := filepath.Join(repositories, name)
		writeFile(t, filepath.Join(dir, "main.tf"), "output \"name\" { value = \""+name+"\" }\n")
		identity := []string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"}
		command(t, dir, "git", "init", "-q")
		if name == "module" {
			command(t, dir, "git", append(identity, "submodule", "--quiet", "add", "../sub", "sub")...)
		}
		command(t, dir, "git", "add", ".")
		command(t, dir, "git", append(identity, "commit", "-qm", "first")...)
	}
	backend := strings.TrimSpace(command(t, "", "git", "--exec-path")) + "/git-http-backend"
	server := httptest.NewTLSServer(&cgi.Handler{
		Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + repositories, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	writeFile(t, filepath.Join(root, "test/ca.pem"), string(authority))
	writeFile(t, filepath.Join(root, "test/stack/main.tf"), "module \"a\" {\n  source = \"git::"+server.URL+"/module/.git\"\n}\n")
	trust := []string{"GIT_SSL_CAINFO=/test/ca.pem"}

	if got := inside(t, root, trust, "/usr/bin/git", "ls-remote", server.URL+"/module/.git"); !strings.Contains(got, "HEAD") {
		t.Errorf("git ls-remote says %q", got)
	}
	got := inside(t, root, append(trust, "TF_DATA_DIR=/tmp/data"), "/usr/bin/sh", "-c",
		"tofu -chdir=/test/stack init -backend=false -no-color && sed -n 's/.*value/found/p' /tmp/data/modules/a/sub/main.tf")
	if !strings.Contains(got, "successfully initialized") || !strings.Contains(got, `found = "sub"`) {
		t.Errorf("tofu init says %q, want a module with its submodule", got)
	}
	// Without the authority the certificate is refused.
	if got, err := attempt(t, root, nil, "/usr/bin/git", "ls-remote", server.URL+"/module/.git"); err == nil || !strings.Contains(got, "certificate") {
		t.Errorf("git trusts an unknown authority (%v): %q", err, got)
	}
}

// extract unpacks an image.
func extract(t *testing.T, image v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	r := mutate.Extract(image)
	defer func() { _ = r.Close() }()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err == nil {
			err = unpackEntry(root, h, in)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(h.Mode) & os.ModePerm
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeDir:
		return errors.Join(root.MkdirAll(name, mode), root.Chmod(name, mode), root.Chown(name, h.Uid, h.Gid))
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// inside runs a program in an image, and returns what it printed.
func inside(t *testing.T, root string, environ []string, args ...string) string {
	t.Helper()
	out, err := attempt(t, root, environ, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

func attempt(t *testing.T, root string, environ []string, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), self, args...)
	cmd.Env = append([]string{enterVariable + "=" + root, "PATH=/usr/local/bin:/usr/bin", "HOME=/home/terrier"}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// enter makes this process a program in a root, as a container runtime does: a read-only
// root, /proc, five devices, two volumes, another user, no capability.
func enter(root string, args []string) error {
	runtime.LockOSThread()
	if os.Getpid() != 1 {
		return errors.New("not in namespaces of its own")
	}
	at := func(p string) string { return filepath.Join(root, p) }
	mount := func(source, target, kind string, flags uintptr, data string) error {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount(source, target, kind, flags, data)
	}
	const volume = "mode=0700,uid=65532,gid=65532"
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return mount(root, root, "", unix.MS_BIND, "") },
		func() error { return mount("proc", at("proc"), "proc", 0, "") },
		func() error { return mount("dev", at("dev"), "tmpfs", 0, "mode=0755") },
		func() error { return mount("tmp", at("tmp"), "tmpfs", 0, "mode=1777") },
		func() error { return mount("data", at("var/lib/terrier"), "tmpfs", 0, volume) },
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		steps = append(steps, func() error {
			if err := os.WriteFile(at("dev/"+device), nil, 0o666); err != nil {
				return err
			}
			return unix.Mount("/dev/"+device, at("dev/"+device), "", unix.MS_BIND, "")
		})
	}
	steps = append(steps,
		func() error { return unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return unix.Chroot(root) },
		func() error { return unix.Chdir("/") },
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setresgid(user, user, user) },
		func() error { return syscall.Setresuid(user, user, user) },
		func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
	)
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	environ := []string{}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, enterVariable+"=") {
			environ = append(environ, v)
		}
	}
	return syscall.Exec(args[0], args, environ)
}

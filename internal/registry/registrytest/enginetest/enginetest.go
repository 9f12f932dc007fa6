// Package enginetest runs the real engine as a client of a registry, with a CLI
// configuration of its own and nothing of the user who runs the test.
//
// It knows no server of ours: a test says where its registry is. Start reading at Client.
package enginetest

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// within bounds every command of an engine.
const within = 5 * time.Minute

// Client is an engine on the computer of a user.
type Client struct {
	Authority string // the file of the certificates that it trusts
	Config    string // in its CLI configuration, see Credentials and NetworkMirror
	Home      string // the directory of its user; a new one for each command if empty
	Program   string // another engine; the one that make has built if empty
}

// Command is a command of the engine in a directory.
func (c Client) Command(ctx context.Context, t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	home := c.Home
	if home == "" {
		home = t.TempDir()
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + c.Authority, "NO_COLOR=1", "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1"}
	if c.Config != "" { // else that of its user, where "tofu login" keeps a token
		file := filepath.Join(t.TempDir(), "cli.tfrc")
		if err := os.WriteFile(file, []byte(c.Config), 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, "TF_CLI_CONFIG_FILE="+file)
	}
	engine := c.Program
	if engine == "" {
		engine = program(t)
	}
	command := exec.CommandContext(ctx, engine, args...)
	command.Dir, command.Env = dir, env
	return command
}

var decoration = regexp.MustCompile("\x1b\\[[0-9;]*m|[│╷╵]")

// Run runs the engine to its end, and returns what it printed in one line: messages are
// coloured, and wrapped to the width of a terminal.
func (c Client) Run(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	out, err := c.Command(ctx, t, dir, args...).CombinedOutput()
	return strings.Join(strings.Fields(decoration.ReplaceAllString(string(out), " ")), " "), err
}

// Init runs init.
func (c Client) Init(t testing.TB, dir string) (string, error) {
	t.Helper()
	return c.Run(t, dir, "init", "-input=false")
}

// Says installs and applies a configuration, as Using makes one, and returns what its module
// says.
func (c Client) Says(t testing.TB, dir string) string {
	t.Helper()
	out := ""
	for _, args := range [][]string{{"init", "-input=false"}, {"apply", "-input=false", "-auto-approve"}, {"output", "-raw", "says"}} {
		var err error
		if out, err = c.Run(t, dir, args...); err != nil {
			t.Fatalf("tofu %s: %v: %s", args[0], err, out)
		}
	}
	return out
}

// program is the engine that make has built.
func program(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		path := filepath.Join(dir, "bin", "tofu")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test needs bin/tofu: run make bin/tofu")
		}
		dir = filepath.Dir(dir)
	}
}

// Credentials is the part of a CLI configuration that has the token for a host.
func Credentials(host, token string) string {
	return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, token)
}

// NetworkMirror is the part of a CLI configuration that names a mirror. More are lines in
// its block.
func NetworkMirror(url, more string) string {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n%s  }\n}\n", url, more)
}

// Using is the directory of a configuration that uses a module with an output. Without a
// version it has no constraint.
func Using(t testing.TB, source, version string) string {
	t.Helper()
	constraint := ""
	if version != "" {
		constraint = fmt.Sprintf("  version = %q\n", version)
	}
	return Written(t, fmt.Sprintf("module \"m\" {\n  source = %q\n%s}\n\noutput \"says\" {\n  value = module.m.says\n}\n", source, constraint))
}

// Requiring is the directory of a configuration that requires a provider.
func Requiring(t testing.TB, source, version string) string {
	t.Helper()
	return Written(t, fmt.Sprintf("terraform {\n  required_providers {\n    cloud = {\n      source  = %q\n      version = %q\n    }\n  }\n}\n", source, version))
}

// Written is the directory of a configuration.
func Written(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// LockFile is the dependency lock file of a directory.
func LockFile(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Authority is a file with the certificate of a server.
func Authority(t testing.TB, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

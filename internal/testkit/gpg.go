package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit/executable"
)

// Signer is an OpenPGP key that git signs with.
type Signer struct {
	Public  []byte // in ASCII armour
	Program string // for gpg.program of git
	User    string
}

// NewSigner makes a key with the real gpg. A test without gpg is skipped.
func NewSigner(tb testing.TB) Signer {
	tb.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		tb.Skip("gpg is not installed")
	}
	home, err := os.MkdirTemp("", "gpg") // names of its sockets are short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		_ = os.RemoveAll(home)
	})
	s := Signer{User: "t@example.com", Program: filepath.Join(tb.TempDir(), "gpg")}
	gpg := func(args ...string) []byte {
		tb.Helper()
		out, err := exec.CommandContext(tb.Context(), "gpg", append([]string{"--homedir", home, "--batch", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...).Output()
		if err != nil {
			tb.Fatalf("gpg %v: %v", args, err)
		}
		return out
	}
	// gpg would start it as well, and wait for five seconds.
	Eventually(tb, Patience, "the agent of gpg runs", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "gpgconf", "--homedir", home, "--launch", "gpg-agent").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	gpg("--quick-generate-key", "t <"+s.User+">", "ed25519", "sign", "never")
	s.Public = gpg("--armor", "--export", s.User)
	if err := executable.Write(s.Program, []byte("#!/bin/sh\nexec gpg --homedir "+home+" --batch \"$@\"\n"), 0o700); err != nil {
		tb.Fatal(err)
	}
	return s
}

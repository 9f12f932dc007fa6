package app

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/fault"
)

// untouched is a control plane that no test may start.
type untouched struct{ t *testing.T }

// Start implements ControlPlane.
func (u untouched) Start(context.Context, string, string, *slog.Logger) (Running, error) {
	u.t.Error("the control plane was started before the flags were checked")
	return nil, io.ErrUnexpectedEOF
}

func flagged(t *testing.T, args ...string) Config {
	t.Helper()
	var c Config
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	if err := flags.Bind(set, &c, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

// What is wrong with a flag by itself is said before anything is started, and
// with its name.
func TestFlagsAreCheckedFirst(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, args := range [][]string{
		{"--log-level", "loud"},
		{"--allow-host", "example.com"},
		{"--allow-host", "10.0.0.0/8", "--allow-host", "10.0.0.0/99"},
		{"--deny-network", "pve.example.com:8006"},
		{"--deny-network", "10.0.0.0/8", "--deny-network", "10.0.0.0/99"},
		{"--prerequisite-host", "pve.example.com"},
		{"--prerequisite-body-host", "10.0.0.0/99"},
		{"--engine-named", "old=tofu"},
		{"--backend-plugin", "shelf=here"}, {"--backend-plugin", "aws=/usr/bin/shelf"},
		{"--run-network", "slirp"},
		{"--min-isolation", "4"},
		{"--min-isolation", "0"},
		{"--max-runs", "0"},
		{"--sync-interval", "-1h"}, {"--sync-interval", "10ms"},
		{"--max-runs-per-tenant", "-1"},
		{"--max-runs-per-class", "drift"}, {"--max-runs-per-class", "drift=0"}, {"--max-runs-per-class", "urgent=2"},
		{"--max-runs-per-class", "drift=2", "--max-runs-per-class", "drift=3"},
		{"--memory-for-runs", "-1"},
		{"--http-address", "8443"},
		{"--http-address", "0.0.0.0:8443"},
		{"--metrics-address", "9090"},
		{"--events-addr", "notification-controller"},
		{"--webhook-certs", nowhere},
		{"--webhook-key", nowhere},
		{"--registry-login-life", "0"}, {"--registry-login-life", "9000h"},
		{"--run-direct", "*/*/*"}, {"--run-mirror=false", "--run-direct", "registry.example.com/*/*"},
		{"--provider-registries=false", "--run-direct", "registry.example.com/acme/cloud"},
		{"--oidc-client-id", "terrier"},
		{"--oidc-issuer", "http://sso.example.com"},
		{"--oidc-issuer", "https://sso.example.com"},
		{"--oidc-issuer", "https://sso.example.com", "--oidc-client-id", "terrier", "--oidc-client-secret-file", nowhere},
		{"--oidc-issuer", "https://sso.example.com", "--oidc-client-id", "terrier", "--oidc-ca-file", nowhere},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			err := Run(t.Context(), Options{
				Config: flagged(t, append(args, "--data-dir", dir)...), ControlPlane: untouched{t},
				Stdout: io.Discard, Stderr: io.Discard, Now: time.Now, Environ: func(string) string { return "" },
			})
			flag := args[len(args)-2]
			if flag == "--oidc-client-id" {
				flag = "--oidc-issuer" // which is not there
			}
			if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != "Usage" || !strings.Contains(err.Error(), flag) {
				t.Errorf("%v, want a word about %s", err, flag)
			}
		})
	}
}

func TestFlagsThatAreFine(t *testing.T) {
	for name, c := range map[string]struct {
		cluster bool
		args    []string
	}{
		"none":       {false, nil},
		"many":       {false, []string{"--allow-host", "10.0.0.0/8", "--allow-host", "[::1]:443", "--deny-network", "34.118.224.0/20", "--deny-network", "fd00::1", "--prerequisite-host", "pve.example.com:8006", "--prerequisite-body-host", "10.1.2.3", "--engine-named", "old=/usr/bin/tofu", "--run-network", "none", "--min-isolation", "3", "--metrics-address", ":9090", "--events-addr", "http://notification-controller/"}},
		"a cluster":  {true, []string{"--http-address", "0.0.0.0:8443"}},
		"an issuer":  {false, []string{"--oidc-issuer", "https://sso.example.com", "--oidc-client-id", "terrier"}},
		"plain http": {false, []string{"--oidc-issuer", "http://127.0.0.1:5556", "--oidc-client-id", "terrier", "--allow-plain-http"}},
	} {
		if err := flagged(t, c.args...).check(c.cluster, func(string) string { return "" }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

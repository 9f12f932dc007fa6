// Package registryserver runs the registry alone, without Kubernetes: the command
// "terrier registry". It wires the store, the rights and the handlers, and serves them
// over TLS.
//
// It never serves a registry that every caller may change. Start reading at Run.
package registryserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry"
)

// Config is all settings.
type Config struct {
	DataDir      string        `flag:"data-dir" env:"TERRIER_REGISTRY_DATA_DIR" default:".terrier-registry" help:"directory for the keys, the certificate authority and the rights of this registry, and for everything that is published unless --storage says otherwise"`
	Storage      string        `flag:"storage" env:"TERRIER_REGISTRY_STORAGE" help:"where everything that is published is: a directory, s3://BUCKET/PREFIX?region=REGION, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX?account=NAME; a bucket of boring-registry is served as it is; default the directory storage of the data directory"`
	Settings     string        `flag:"config" env:"TERRIER_REGISTRY_CONFIG" help:"file with the upstream registries of the mirror, and its rules; by default the public registries are mirrored for all callers"`
	Rights       string        `flag:"rights" env:"TERRIER_REGISTRY_RIGHTS" help:"file that says which tokens may read and write which namespaces; by default the file rights.yaml of the data directory, which the first start makes, with a token for everything"`
	Repositories string        `flag:"repositories" env:"TERRIER_REGISTRY_REPOSITORIES" help:"file with git repositories whose tags become versions of modules, read again when it changes"`
	KnownHosts   string        `flag:"ssh-known-hosts" env:"TERRIER_SSH_KNOWN_HOSTS" help:"file in the form of known_hosts with the keys of git servers, for repositories over ssh whose credentials have no known_hosts; the keys of github.com, gitlab.com and bitbucket.org are built in"`
	Anonymous    bool          `flag:"allow-anonymous-reads" env:"TERRIER_REGISTRY_ALLOW_ANONYMOUS_READS" help:"let callers without a token read everything"`
	Audit        string        `flag:"audit-dir" env:"TERRIER_REGISTRY_AUDIT_DIR" help:"directory of the audit log of what users publish, retract and remove; one process writes it; default the directory audit of the data directory"`
	QuotaSize    int           `flag:"quota-size" env:"TERRIER_REGISTRY_QUOTA_SIZE" default:"0" help:"MiB that each namespace may have in the registry; 0 for no limit"`
	QuotaCount   int           `flag:"quota-versions" env:"TERRIER_REGISTRY_QUOTA_VERSIONS" default:"0" help:"number of versions of modules and providers that each namespace may have; 0 for no limit"`
	Listen       string        `flag:"listen-address" env:"TERRIER_REGISTRY_LISTEN_ADDRESS" default:"127.0.0.1:8443" help:"address to serve at, as host:port"`
	Hosts        []string      `flag:"host" env:"TERRIER_REGISTRY_HOSTS" help:"name or address of this server in its own certificate, and in what it prints (repeatable)"`
	Cert         string        `flag:"tls-cert-file" env:"TERRIER_REGISTRY_TLS_CERT_FILE" help:"file with the certificate of this server, read again when it changes; by default the server makes one with an authority of its own"`
	Key          string        `flag:"tls-key-file" env:"TERRIER_REGISTRY_TLS_KEY_FILE" help:"file with the key of --tls-cert-file"`
	PlainHTTP    bool          `flag:"plain-http" env:"TERRIER_REGISTRY_PLAIN_HTTP" help:"serve without encryption, behind a proxy that ends TLS: tokens pass in clear"`
	ArchiveKey   string        `flag:"archive-key-file" env:"TERRIER_REGISTRY_ARCHIVE_KEY_FILE" help:"file with the key that signs addresses of archives, made if it does not exist; by default the key is in the storage, so that replicas have the same one"`
	Metrics      string        `flag:"metrics-address" env:"TERRIER_REGISTRY_METRICS_ADDRESS" help:"address that serves /metrics to Prometheus, without encryption and authentication; off if empty"`
	Drain        time.Duration `flag:"drain" env:"TERRIER_REGISTRY_DRAIN" default:"30s" help:"time that requests have to end when this program is stopped"`
	Stall        time.Duration `flag:"stall-timeout" env:"TERRIER_REGISTRY_STALL_TIMEOUT" default:"1m" help:"time after which a client that takes or sends nothing is disconnected; a slow client has all the time it needs"`

	LoginClient string   `flag:"login-client-id" env:"TERRIER_REGISTRY_LOGIN_CLIENT_ID" help:"client ID of tofu and terraform at the identity provider that tofu login gets its token from; off if empty"`
	LoginAuthz  string   `flag:"login-authz-url" env:"TERRIER_REGISTRY_LOGIN_AUTHZ_URL" help:"authorization endpoint of the identity provider"`
	LoginToken  string   `flag:"login-token-url" env:"TERRIER_REGISTRY_LOGIN_TOKEN_URL" help:"token endpoint of the identity provider"`
	LoginScopes []string `flag:"login-scope" env:"TERRIER_REGISTRY_LOGIN_SCOPES" help:"scope that tofu login asks for (repeatable)"`
	LoginPorts  string   `flag:"login-ports" env:"TERRIER_REGISTRY_LOGIN_PORTS" default:"10000-10010" help:"ports of the computer of the user at which tofu login may wait; the client of the identity provider allows http://localhost:PORT/login for them"`

	AllowHosts []string `flag:"allow-host" env:"TERRIER_ALLOW_HOSTS" help:"host:port, address or CIDR that buckets, issuers, git servers and upstream registries may have although it is local or private (repeatable)"`
	Output     string   `flag:"output" short:"o" help:"json prints one line when ready"`
	LogLevel   string   `flag:"log-level" env:"TERRIER_LOG_LEVEL" default:"info" help:"debug, info, warn or error; debug has a line for each request"`
}

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, "Usage", fmt.Errorf(format, args...))
}

// check reports invalid settings before anything starts.
func (c Config) check(environ func(string) string) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return usage("--log-level: %w", err)
	}
	if c.Output != "" && c.Output != "json" {
		return usage("--output: there is no format %q but json", c.Output)
	}
	for name, address := range map[string]string{"listen-address": c.Listen, "metrics-address": c.Metrics} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil || address == "" && name == "listen-address" {
			return usage("--%s %q is not host:port", name, address)
		}
	}
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return usage("--tls-cert-file and --tls-key-file need each other")
	case c.PlainHTTP && c.Cert != "":
		return usage("--plain-http and --tls-cert-file exclude each other")
	case c.QuotaSize < 0 || c.QuotaCount < 0:
		return usage("--quota-size and --quota-versions cannot be negative")
	case c.Drain < 0 || c.Stall <= 0:
		return usage("--drain cannot be negative, and --stall-timeout has to be positive")
	}
	if _, err := outbound.ParseAllow(c.AllowHosts...); err != nil {
		return usage("--allow-host: %w", err)
	}
	if _, err := c.services(); err != nil {
		return err
	}
	if !c.inFiles() {
		if _, err := bucket.Parse(c.Storage, environ); err != nil {
			return usage("--storage: %w: it is a directory, or the URL of a bucket: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX", err)
		}
	}
	return nil
}

// inFiles reports whether the storage is a directory.
func (c Config) inFiles() bool { return !strings.Contains(c.Storage, "://") }

// storageDir is the directory of the storage.
func (c Config) storageDir() string {
	if c.Storage != "" {
		return c.Storage
	}
	return c.dir("storage")
}

// quota is that of each namespace.
func (c Config) quota(context.Context, string) (registry.Quota, error) {
	return registry.Quota{Bytes: int64(c.QuotaSize) << 20, Versions: c.QuotaCount, Raise: "--quota-size, in MiB, and --quota-versions"}, nil
}

// auditDir is the directory of the audit log.
func (c Config) auditDir() string {
	if c.Audit != "" {
		return c.Audit
	}
	return c.dir("audit")
}

func (c Config) dir(below ...string) string {
	return filepath.Join(append([]string{c.DataDir}, below...)...)
}

// Command returns the command that runs the registry alone. Program is the name of this
// program in messages.
func Command(program, version string, environ func(string) string, now func() time.Time) (*cobra.Command, error) {
	var c Config
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Run the registry of modules and providers alone, without Kubernetes",
		Long: `Serves modules and providers that users publish, and providers of other registries
through a mirror, to tofu and terraform. It needs no Kubernetes and no database:
everything is in a directory or a bucket.

The first start makes a certificate authority, a file of rights, and a token for
everything, and prints what a client needs. SIGTERM ends it: requests that go on have
--drain to end.`,
		Example: `  terrier registry
  terrier registry --storage s3://modules/registry?region=eu-west-1 --listen-address :8443 --host registry.example.com
  terrier registry --tls-cert-file tls.crt --tls-key-file tls.key --rights rights.yaml --config mirror.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), Options{
				Config: c, Program: program, Version: version, Now: now, Environ: environ,
				Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(),
			})
		},
	}
	below, err := bundleCommands(environ, now)
	cmd.AddCommand(below...)
	return cmd, errors.Join(err, flags.Bind(cmd.Flags(), &c, environ))
}

// names are those of this server for its own certificate: the given ones, the address it
// listens at, and those of this machine.
func (c Config) names() []string {
	names := slices.Clone(c.Hosts)
	for _, n := range []string{host(c.Listen), "localhost", "127.0.0.1", "::1"} {
		ip := net.ParseIP(n)
		if n != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return h
}

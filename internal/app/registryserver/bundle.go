package registryserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
)

// bundles are the commands that bring providers to a mirror without a network, and take
// them from one. They work on the storage, beside the registries that serve it.
type bundles struct {
	Config
	environ func(string) string
	now     func() time.Time
}

// served are the flags of Config that only a server has.
func served() []string {
	return []string{"rights", "allow-anonymous-reads", "listen-address", "host", "tls-cert-file", "tls-key-file", "plain-http",
		"archive-key-file", "metrics-address", "drain", "stall-timeout", "output",
		"login-client-id", "login-authz-url", "login-token-url", "login-scope", "login-ports"}
}

// bundleCommands returns import and export.
func bundleCommands(environ func(string) string, now func() time.Time) ([]*cobra.Command, error) {
	in, out := &bundles{environ: environ, now: now}, &bundles{environ: environ, now: now}
	importing := &cobra.Command{
		Use:   "import DIR",
		Short: "Import providers from a directory into the mirror",
		Long: `Imports a directory that "tofu providers mirror" or "terrier registry export" made.
Archives of releases that the mirror knows have to be the ones of these releases.
Imported archives are never deleted. The storage of "terrier up" is the directory
packages in its data directory.`,
		Example: `  tofu providers mirror -platform=linux_amd64 bundle
  terrier registry import bundle
  terrier registry import bundle --storage .terrier/packages`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return in.importFrom(cmd, args[0]) },
	}
	var providers, platforms []string
	var versions string
	exporting := &cobra.Command{
		Use:   "export DIR",
		Short: "Export stored providers of the mirror to a directory",
		Long: `Writes archives that the mirror has stored to a directory, with their signed checksums.
Another mirror imports it, and an engine takes it as a filesystem_mirror.`,
		Example: `  terrier registry export bundle
  terrier registry export bundle --provider "registry.opentofu.org/hashicorp/*" --versions "~> 5.0" --platform linux_amd64`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := selection(providers, versions, platforms)
			if err != nil {
				return err
			}
			return out.exportTo(cmd, args[0], s)
		},
	}
	exporting.Flags().StringArrayVar(&providers, "provider", nil, "pattern HOST/NAMESPACE/TYPE of providers, where each part may have a * (repeatable); all by default")
	exporting.Flags().StringVar(&versions, "versions", "", "constraint of versions, for instance \"~> 5.0\"; all by default")
	exporting.Flags().StringArrayVar(&platforms, "platform", nil, "platform OS_ARCH (repeatable); all by default")
	return []*cobra.Command{importing, exporting}, errors.Join(
		flags.Bind(importing.Flags(), &in.Config, environ, served()...), flags.Bind(exporting.Flags(), &out.Config, environ, served()...))
}

func selection(providers []string, versions string, platforms []string) (mirror.Selection, error) {
	var s mirror.Selection
	if versions != "" && len(providers) == 0 {
		providers = []string{"*/*/*"}
	}
	for _, p := range providers {
		s.Providers = append(s.Providers, mirror.Pattern{Provider: p, Versions: versions})
	}
	for _, name := range platforms {
		p, err := address.ParsePlatform(name)
		if err != nil {
			return s, usage("--platform: %w", err)
		}
		s.Platforms = append(s.Platforms, p)
	}
	return s, nil
}

// with opens the mirror of the storage for one call.
func (b *bundles) with(cmd *cobra.Command, do func(context.Context, *mirror.Mirror, Storage) error) (err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(b.LogLevel)); err != nil {
		return usage("--log-level: %w", err)
	}
	if b.DataDir, err = filepath.Abs(b.DataDir); err != nil {
		return err
	}
	place := Storage{Bucket: b.Storage, Allow: b.AllowHosts, Environ: b.environ, Flag: "--storage"}
	if b.inFiles() {
		if place.Dir, err = filepath.Abs(b.storageDir()); err != nil {
			return err
		}
		place.Bucket = ""
		if err := ofRegistry(place.Dir); err != nil {
			return err
		}
	}
	if place.Scratch, err = os.MkdirTemp(b.scratch(), "bundle-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(place.Scratch)) }()
	settings, err := readSettings(b.Settings)
	if err != nil {
		return err
	}
	allow, err := outbound.ParseAllow(b.AllowHosts...)
	if err != nil {
		return usage("--allow-host: %w", err)
	}
	store, closer, err := place.Open(cmd.Context())
	if err != nil {
		return fmt.Errorf("--storage: %w", err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	m, err := mirror.New(store, mirror.Options{
		Settings: settings, Policy: outbound.Policy{Allow: allow, Proxy: true}, Scratch: place.Scratch, Now: b.now,
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		return err
	}
	defer m.Close()
	return do(cmd.Context(), m, place)
}

// scratch is the directory for files on their way: that of the registry if its data
// directory is here, else that of the system. A command on a bucket makes no data
// directory of a registry.
func (b *bundles) scratch() string {
	if info, err := os.Stat(b.dir("scratch")); err == nil && info.IsDir() {
		return b.dir("scratch")
	}
	return os.TempDir()
}

// stored are the directories of a storage.
var stored = []string{"index", "modules", "providers", "waiting", "mirror", "oci", ".lock", ".partial", "lost+found"}

// ofRegistry refuses a directory that is no storage of a registry. An empty one may
// become one.
func ofRegistry(dir string) error {
	const way = "name the storage of the registry with --storage or --data-dir; that of terrier up is .terrier/packages"
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage("there is no directory %s: %s. For a new storage make the directory first", dir, way)
	case err != nil:
		return usage("reading the storage: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(stored, e.Name()) {
			return usage("the directory %s is no storage of a registry: it has %s: %s", dir, e.Name(), way)
		}
	}
	return nil
}

// bundleAt opens the directory of a bundle.
func bundleAt(dir string) (fs.FS, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, usage("reading the bundle: %w", err)
	} else if !info.IsDir() {
		return nil, usage("the bundle %s is no directory: make one with tofu providers mirror DIR", dir)
	}
	bundle := os.DirFS(dir)
	packed, err := fs.Glob(bundle, "*/*/*/index.json")
	if err != nil || len(packed) > 0 {
		return bundle, err
	}
	unpacked, err := fs.Glob(bundle, "*/*/*/*/*_*/terraform-provider-*")
	if err == nil && len(unpacked) > 0 {
		err = usage("the directory %s has unpacked providers, which cannot be imported: make a directory with archives with tofu providers mirror DIR", dir)
	}
	return bundle, err
}

func (b *bundles) importFrom(cmd *cobra.Command, dir string) error {
	bundle, err := bundleAt(dir)
	if err != nil {
		return err
	}
	return b.with(cmd, func(ctx context.Context, m *mirror.Mirror, place Storage) error {
		done, err := m.Import(ctx, bundle, cmp.Or(b.environ("USER"), "an operator"))
		if err == nil || done.Archives+done.Known > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "Imported %s into %s; imported before: %d.\n", plural.Count(done.Archives, "archive"), shown(place), done.Known)
		}
		return err
	})
}

func (b *bundles) exportTo(cmd *cobra.Command, dir string, s mirror.Selection) error {
	return b.with(cmd, func(ctx context.Context, m *mirror.Mirror, _ Storage) error {
		n, err := m.Export(ctx, dir, s)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "Exported %s to %s.\n", plural.Count(n, "archive"), dir)
		}
		return err
	})
}

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/query"
)

// registryTokenCommands are about tokens for the registry of modules and providers.
type registryTokenCommands struct{ *program }

// below adds them to the command "registry", which runs a registry alone in programs that
// can.
func (p registryTokenCommands) below(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() == "registry" {
			c.AddCommand(p.tokens(), p.usage())
			return
		}
	}
	root.AddCommand(group(&cobra.Command{
		Use: "registry", Short: "Run a registry of modules and providers, and manage its tokens", GroupID: groupOperate,
		Long: `Without a further command, this runs a registry alone, without Kubernetes:
docs/registry-server.md has its flags.`,
		Example: "  terrier registry tokens list",
	}, p.tokens(), p.usage()))
}

func (p registryTokenCommands) usage() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show what a namespace takes of the registry, and its quota",
		Long: `Shows how many versions of modules and providers a namespace has published (-n), the size
of their archives, and the quota that the operator of the registry has set. Packages of
providers that are uploaded and not published yet count as well.`,
		Example: `  terrier registry usage -n network
  terrier registry usage -n network -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, namespace, err := p.connection.Registry(cmd.Context())
			if err != nil {
				return err
			}
			u, err := to.Usage(cmd.Context(), namespace)
			if err != nil || p.structured(f, u) {
				return err
			}
			of := func(bounded bool, text string) string {
				if !bounded {
					return "no quota"
				}
				return "quota " + text
			}
			p.say("Namespace %s: %s (%s), %s (%s)\n", u.Namespace, query.Count(u.Versions, "version"), of(u.Quota.Versions > 0, strconv.Itoa(u.Quota.Versions)),
				query.Size(int(u.Bytes+u.Waiting)), of(u.Quota.Bytes > 0, query.Size(int(u.Quota.Bytes))))
			if u.Waiting > 0 {
				p.note("%s of them are not published yet. They are deleted after a week.\n", query.Size(int(u.Waiting)))
			}
			return nil
		},
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p registryTokenCommands) tokens() *cobra.Command {
	return group(&cobra.Command{
		Use:   "tokens",
		Short: "List, create and revoke tokens for the registry of modules and providers",
		Long: `A token lets tofu and terraform read modules and providers of the registry of a Terrier
server, and publish them if it may. It opens nothing else. "tofu login HOST" gets a token
that stands for a user. A token of a namespace is for CI: it reads, or reads and
publishes, in that namespace.`,
		Example: `  terrier registry tokens list
  terrier registry tokens create -n network --write --name ci --life 90d
  terrier registry tokens revoke 7f3a0c5be2d94811`,
	}, p.list(), p.create(), p.revoke())
}

func (p registryTokenCommands) list() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tokens for the registry",
		Long: `Lists your tokens, and the tokens of namespaces where you may update
terraforms/registry. Users who may do so in all namespaces see all tokens. A token that
has ended is listed for a week after that.`,
		Example: `  terrier registry tokens list
  terrier registry tokens list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, _, err := p.connection.RegistryTokens(cmd.Context())
			if err != nil {
				return err
			}
			list, err := k.List(cmd.Context())
			if err == nil && !p.structured(f, map[string]any{"items": list}) {
				p.printTokens(list)
			}
			return err
		},
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p registryTokenCommands) printTokens(list []regtoken.Token) {
	if len(list) == 0 {
		p.say("There are no tokens for the registry that you may see.\n")
		return
	}
	t := &table{head: []string{"ID", "NAME", "OF", "MAY", "EXPIRES", "STATUS"}}
	for _, r := range list {
		of, may := r.User, "as its user"
		if r.Namespace != "" {
			of, may = "namespace "+r.Namespace, r.May()
		}
		status, colour := "active", ""
		switch {
		case !r.Revoked.IsZero():
			status, colour = "revoked by "+r.RevokedBy, red
		case r.Former:
			status, colour = "namespace deleted", red
		case !r.Active(p.Now()):
			status = "expired"
		}
		t.add(plain(r.ID), plain(r.Name), plain(of), plain(may), plain(r.Expires.UTC().Format(time.RFC3339)), cell{text: status, colour: colour})
	}
	p.table(t)
}

func (p registryTokenCommands) create() *cobra.Command {
	var (
		f      format
		wanted command.NewRegistryToken
		life   string
	)
	c := &cobra.Command{
		Use:   "create --name NAME",
		Short: "Create a token of a namespace, for CI",
		Long: `Creates a token that may read the modules and providers of a namespace (-n), with --write
also publish and retract them. It needs the permission to update terraforms/registry in
that namespace.

The command prints the token to standard output, and everything else to standard error.
The server keeps only a digest of the token: it cannot be printed again.`,
		Example: `  terrier registry tokens create -n network --name ci
  terrier registry tokens create -n network --write --name ci --life 90d > token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lasts, err := lifeOf(life)
			if err != nil {
				return err
			}
			if wanted.Name == "" {
				return usage("--name is missing: it says what the token is for, for instance --name ci")
			}
			if err := p.needNamespace("token"); err != nil {
				return err
			}
			wanted.LifeSeconds = int64(lasts / time.Second)
			k, namespace, err := p.connection.RegistryTokens(cmd.Context())
			if err != nil {
				return err
			}
			made, err := k.Create(cmd.Context(), namespace, wanted)
			if err != nil || p.structured(f, made) {
				return err
			}
			p.say("%s\n", made.Secret)
			p.note("Created the token %s (ID %s). It may %s modules and providers of the namespace %s until %s.\nTo use it: %s\nTo revoke it: terrier registry tokens revoke %s\n",
				made.Name, made.ID, made.May(), made.Namespace, made.Expires.UTC().Format(time.RFC3339), tokenUse(k.Host()), made.ID)
			return nil
		},
	}
	c.Flags().StringVar(&wanted.Name, "name", "", "what the token is for, for its list")
	c.Flags().BoolVar(&wanted.Write, "write", false, "the token may also publish and retract")
	c.Flags().StringVar(&life, "life", "90d", "how long the token is valid: 12h, 90d; at most 366d")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// tokenUse says how tofu and terraform get a token for a host. The variable of a host has no
// way to write a port.
func tokenUse(host string) string {
	name := strings.TrimSuffix(host, ":443")
	if strings.Contains(name, ":") {
		return fmt.Sprintf("write it into the file that TF_CLI_CONFIG_FILE names: credentials %q { token = \"TOKEN\" }", name)
	}
	return fmt.Sprintf("export TF_TOKEN_%s=TOKEN", strings.NewReplacer(".", "_", "-", "__").Replace(name))
}

// lifeOf reads a duration, also in days.
func lifeOf(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, usage("--life: %q is no duration: use 12h or 90d", s)
	}
	return d, nil
}

func (p registryTokenCommands) revoke() *cobra.Command {
	c := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke a token for the registry",
		Long:    `Revokes a token. Each replica of the server refuses it from then on.`,
		Example: `  terrier registry tokens revoke 7f3a0c5be2d94811`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, _, err := p.connection.RegistryTokens(cmd.Context())
			if err != nil {
				return err
			}
			t, err := k.Revoke(cmd.Context(), args[0])
			if err == nil && t.Revoked.IsZero() {
				p.say("The token %s had expired before.\n", t.Name)
			} else if err == nil {
				p.say("The token %s is revoked.\n", t.Name)
			}
			return err
		},
	}
	return c
}

// identityCommands are about the identities of runs at other systems.
type identityCommands struct{ *program }

func (p identityCommands) commands() []*cobra.Command {
	return []*cobra.Command{group(&cobra.Command{
		Use: "identity", Short: "Identities of runs at clouds, Vault and Kubernetes", GroupID: groupOperate,
		Long: `Runs sign in to clouds, Vault and Kubernetes with tokens that live for minutes: docs/identities.md.`,
		Example: `  terrier identity jwks
  terrier runs network`,
	}, p.jwks())}
}

func (p identityCommands) jwks() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "jwks",
		Short: "Write the discovery document and the keys of the issuer as files",
		Long: `Writes the two documents that verifiers read as files of a directory, or prints the keys.

Verifiers of clouds must reach the address of --identity-issuer. Where they cannot reach the
server, that address may be a public bucket with these files. A new key is published 15 days
before the first token is signed with it, so copy the files at least once a week.`,
		Example: `  terrier identity jwks
  terrier identity jwks --dir site && aws s3 sync site s3://identity-example-com`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			issuer, err := p.connection.IdentityIssuer(cmd.Context())
			if err != nil {
				return err
			}
			documents := map[string][]byte{}
			for _, path := range identity.Documents() {
				documents[path], err = issuer.Document(cmd.Context(), path)
				if fault.Of(err) == fault.Missing {
					return fault.New(fault.Missing, "NoIdentities", errors.New("the server gives its runs no identity: as the operator, set --identity-issuer"))
				}
				if err != nil {
					return err
				}
			}
			at, err := issuerOf(documents[identity.PathDiscovery], documents[identity.PathKeys])
			if err != nil {
				return err
			}
			if dir == "" {
				p.say("%s\n", strings.TrimSpace(string(documents[identity.PathKeys])))
				return nil
			}
			for path, content := range documents {
				file := filepath.Join(dir, filepath.FromSlash(path))
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)); err != nil {
					return err
				}
			}
			p.say("Wrote the documents of the issuer %s into %s.\n", at, dir)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "directory to write .well-known/openid-configuration and .well-known/jwks.json into")
	return c
}

// issuerOf is the address in a discovery document. Keys that are none, or documents of
// different issuers, would have verifiers refuse every token.
func issuerOf(discovery, keys []byte) (string, error) {
	var d struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := errors.Join(json.Unmarshal(discovery, &d), json.Unmarshal(keys, &set)); err != nil {
		return "", fmt.Errorf("reading the documents of the issuer: %w", err)
	}
	if d.Issuer == "" || d.Keys != d.Issuer+identity.PathKeys || len(set.Keys) == 0 {
		return "", fault.New(fault.Later, "NoIdentityKeys", errors.New("the issuer has no key yet: try again in a minute"))
	}
	return d.Issuer, nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/client/publish"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

// providerCommands publish providers in the registry of a server.
type providerCommands struct{ *program }

func (p providerCommands) commands() []*cobra.Command {
	return []*cobra.Command{group(&cobra.Command{
		Use:     "provider",
		Short:   "Publish providers in the registry, and the keys that sign them",
		GroupID: groupOperate,
		Example: `  terrier provider keys add release.asc --namespace net
  terrier provider push ./dist --namespace net
  terrier provider list net/dns`,
	}, p.push(), p.list(), p.uses(), p.retract(), p.restore(), p.keys())}
}

func (p providerCommands) push() *cobra.Command {
	var ignore bool
	c := &cobra.Command{
		Use:   "push {DIR | SHA256SUMS}",
		Short: "Publish a signed release of a provider",
		Long: `Publishes a release of a provider as its build tools leave it: the list of sums
terraform-provider-TYPE_VERSION_SHA256SUMS, its detached signature SHA256SUMS.sig, the
packages terraform-provider-TYPE_VERSION_OS_ARCH.zip that the list names, and its
manifest.json if there is one. DIR contains one such list.

The command checks all sums before it sends anything. The registry verifies the
signature with a key of the namespace, and the version is visible only after that.
A published version never changes. The command succeeds again for the same packages.`,
		Example: `  terrier provider push ./dist --namespace net
  terrier provider push ./dist/terraform-provider-dns_1.2.3_SHA256SUMS -n net`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.needNamespace("provider"); err != nil {
				return err
			}
			r, err := publish.OpenProvider(p.path(args[0]), p.connection.Namespace)
			if err != nil {
				return err
			}
			for _, name := range r.Ignored {
				p.note("Not sent: %s, which the list names\n", name)
			}
			again, err := p.publish(cmd.Context(), r)
			switch {
			case again:
				p.say("%s %s was published before, with the same packages\n", r.Address, r.Version)
				return nil
			case ignore && fault.Reason(err, "") == client.ReasonStays:
				p.say("%s %s exists, and stays as it is\n", r.Address, r.Version)
				return nil
			case err != nil:
				return fmt.Errorf("publishing %s %s: %w", r.Address, r.Version, err)
			}
			p.say("Published %s %s for %s\n", r.Address, r.Version, query.Count(len(r.Packages), "platform"))
			return nil
		},
	}
	c.Flags().BoolVar(&ignore, "ignore-existing", false, "leave a version that exists as it is")
	return c
}

// publish sends the files of a release, and has the registry publish it. It reports whether
// the same packages were published before.
func (p providerCommands) publish(ctx context.Context, r publish.Provider) (again bool, err error) {
	to, _, err := p.connection.Registry(ctx)
	if err != nil {
		return false, err
	}
	for _, f := range r.Files {
		err := to.PushProviderFile(ctx, r.Address, r.Version, f)
		if fault.Reason(err, "") == client.ReasonStays {
			same, failed := samePackages(ctx, to, r)
			if same {
				return true, nil
			}
			err = errors.Join(err, failed)
		}
		if err != nil {
			return false, fmt.Errorf("sending %s: %w", filepath.Base(f), err)
		}
	}
	return false, to.PublishProvider(ctx, r.Address, r.Version)
}

// samePackages reports whether the registry has the packages of a release, and no others.
func samePackages(ctx context.Context, to *client.Registry, r publish.Provider) (bool, error) {
	for on := range r.Packages {
		sums, err := to.ProviderSums(ctx, r.Address, r.Version, on)
		if fault.Of(err) == fault.Missing { // it was retracted, or has other platforms
			return false, nil
		}
		return err == nil && maps.Equal(sums, r.Packages), err
	}
	return false, nil
}

// needNamespace refuses a command that would change the namespace of the kubeconfig, which the
// user may not think of.
func (p *program) needNamespace(of string) error {
	if p.connection.Namespace == "" {
		return usage("the namespace of the %s is missing: name it with --namespace", of)
	}
	return nil
}

// provider reads the address of a command, and connects to the registry.
func (p providerCommands) provider(ctx context.Context, name string) (address.Provider, *client.Registry, error) {
	at, err := address.ParseProvider(name)
	if err == nil && at.Host != "" {
		err = usage("%s has a host: name a provider of this registry as NAMESPACE/TYPE", name)
	}
	if err != nil {
		return at, nil, err
	}
	to, _, err := p.connection.Registry(ctx)
	return at, to, err
}

func (p providerCommands) list() *cobra.Command {
	l := listing{q: catalog.Query{Kind: catalog.Providers}}
	c := &cobra.Command{
		Use:   "list [NAMESPACE | NAMESPACE/TYPE]",
		Short: "List the providers of the registry, or the versions of one",
		Long: `Lists the providers of the namespaces that you may read, or of one namespace: the newest
version that clients choose, how many versions there are, and when the newest was published
and by which user. With the address of a provider it lists the versions of that one. Those
of the mirror are on the page /registry/mirror.`,
		Example: `  terrier provider list
  terrier provider list net
  terrier provider list net/dns
  terrier provider list net/dns -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !p.about(&l, args) {
				return p.listPublished(cmd.Context(), l)
			}
			at, to, err := p.provider(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			list, warnings, err := to.Providers(cmd.Context(), at)
			if err != nil {
				return err
			}
			if p.structured(l.f, map[string]any{"items": list}) {
				return nil
			}
			for _, w := range warnings {
				if !slices.ContainsFunc(list, func(v client.RegistryVersion) bool { return v.Retracted != nil }) { // the list has them
					p.note("%s\n", w)
				}
			}
			t := &table{head: []string{"VERSION", "PUBLISHED", "BY", "SIZE", "STATUS", "PLATFORMS"}}
			for _, v := range list {
				t.add(append(p.published(v), plain(strings.Join(v.Platforms, " ")))...)
			}
			p.table(t)
			return nil
		},
	}
	l.flags(c)
	return c
}

func (p providerCommands) retract() *cobra.Command {
	var r retraction
	c := &cobra.Command{
		Use:   "retract NAMESPACE/TYPE VERSION",
		Short: "Withdraw a version of a provider",
		Long: `Withdraws a version of a provider: no version constraint selects it, and clients that
ask for exactly this version are refused. Its content stays. The registry tells users
the reason.

The command says first which stacks use the version, of those that you may list, and of
how many that is not known. Unless no stack does, it asks for a confirmation.`,
		Example:           `  terrier provider retract net/dns 1.2.3 --reason "loses records; use 1.2.4"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			v, err := address.ParseVersion(args[1])
			if err != nil {
				return err
			}
			at, to, err := p.provider(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.program.retract(cmd.Context(), r, at, v, usedby.Question{Provider: at.String()}, func() error {
				return to.RetractProvider(cmd.Context(), at, v, r.reason)
			})
		},
	}
	r.flags(c)
	return c
}

func (p providerCommands) restore() *cobra.Command {
	return &cobra.Command{
		Use:               "restore NAMESPACE/TYPE VERSION",
		Short:             "Make a retracted version of a provider usable again",
		Example:           `  terrier provider restore net/dns 1.2.3`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := address.ParseVersion(args[1])
			if err != nil {
				return err
			}
			at, to, err := p.provider(cmd.Context(), args[0])
			if err == nil {
				err = to.RestoreProvider(cmd.Context(), at, v)
			}
			if err == nil {
				p.say("Restored %s %s\n", at, v)
			}
			return err
		},
	}
}

func (p providerCommands) keys() *cobra.Command {
	return group(&cobra.Command{
		Use:   "keys",
		Short: "Show and change the public keys that sign the providers of a namespace",
		Example: `  gpg --armor --export release@example.com | terrier provider keys add - --namespace net
  terrier provider keys list --namespace net`,
	}, p.addKey(), p.listKeys(), p.removeKey())
}

// keyBytes bounds a public key.
const keyBytes = 1 << 20

func (p providerCommands) addKey() *cobra.Command {
	return &cobra.Command{
		Use:   "add FILE",
		Short: "Add a public key in ASCII armour; - reads it from standard input",
		Example: `  terrier provider keys add release.asc --namespace net
  gpg --armor --export release@example.com | terrier provider keys add - -n net`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.needNamespace("key"); err != nil {
				return err
			}
			armor, err := p.readFile(args[0], keyBytes)
			if err != nil {
				return err
			}
			if strings.Contains(string(armor), "PRIVATE KEY") {
				return usage("%s has a private key, which belongs to no registry: export the public key with: gpg --armor --export", args[0])
			}
			to, namespace, err := p.connection.Registry(cmd.Context())
			if err != nil {
				return err
			}
			k, err := to.AddKey(cmd.Context(), namespace, armor)
			if err == nil {
				p.say("Added the key %s to the namespace %s\n", k.ID, namespace)
			}
			return err
		},
	}
}

func (p providerCommands) listKeys() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the public keys of a namespace, or of all namespaces that you may read",
		Example: "  terrier provider keys list\n  terrier provider keys list --namespace net -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, namespace, err := p.connection.Registry(cmd.Context())
			if err != nil {
				return err
			}
			var list []client.PublishedKey
			if p.connection.Namespace == "" {
				list, err = to.AllKeys(cmd.Context())
			} else {
				list, err = to.Keys(cmd.Context(), namespace)
			}
			if err != nil || p.structured(f, map[string]any{"items": list}) {
				return err
			}
			switch {
			case len(list) > 0:
			case p.connection.Namespace == "":
				p.say("No namespace that you may read has keys. To add one: terrier provider keys add FILE --namespace NAMESPACE\n")
				return nil
			default:
				p.say("The namespace %s has no keys. To add one: terrier provider keys add FILE -n %s\n", namespace, namespace)
				return nil
			}
			t := &table{head: []string{"NAMESPACE", "KEY", "COMMENT"}}
			for _, k := range list {
				t.add(plain(k.Namespace), plain(k.ID), plain(comment(k.Armor)))
			}
			p.table(t)
			return nil
		},
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// comment is what the armour of a key says about it.
func comment(armor string) string {
	for line := range strings.Lines(armor) {
		if text, ok := strings.CutPrefix(line, "Comment:"); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

func (p providerCommands) removeKey() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "remove KEY",
		Short: "Remove a public key of a namespace",
		Long: `Removes a public key of a namespace. A key that a published version needs stays,
since clients could not install that version any more.`,
		Example:           `  terrier provider keys remove 34365D9472D7468F --namespace net`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.needNamespace("key"); err != nil {
				return err
			}
			to, namespace, err := p.connection.Registry(cmd.Context())
			if err != nil {
				return err
			}
			if err := to.RemoveKey(cmd.Context(), namespace, args[0], force); err != nil {
				return err
			}
			p.say("Removed the key %s of the namespace %s\n", args[0], namespace)
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "remove the key also if a published version needs it")
	return c
}

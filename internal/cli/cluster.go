package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
)

// cluster is the cluster that the flags select, and the objects that arguments
// name in it.
type cluster struct {
	connection client.Connection
	all        bool // namespaces
}

// bind adds the flags that select a cluster, as those of kubectl, or a server.
func (c *cluster) bind(root *cobra.Command, env Env) {
	to := &c.connection
	f := root.PersistentFlags()
	f.StringVar(&to.Kubeconfig, "kubeconfig", "", "the kubeconfig `file` to use")
	f.StringVar(&to.Context, "context", "", "the `context` of the kubeconfig to use")
	f.StringVarP(&to.Namespace, "namespace", "n", "", "the `namespace` to use")
	f.StringVar(&to.Server, "server", "", "the `URL` of the Terrier server (TERRIER_SERVER); by default the server of the cluster. With a token in TERRIER_TOKEN or TERRIER_TOKEN_FILE, commands use only this server, and no kubeconfig")
	tokenFile := f.String("token-file", "", "a `file` with the token for --server, instead of TERRIER_TOKEN (TERRIER_TOKEN_FILE)")
	f.StringVar(&to.CA, "server-ca", "", "the `file` with the certificate authority of --server (TERRIER_SERVER_CA)")
	to.Path, to.Home, to.Dir, to.Now, to.Kinds = env.getenv("KUBECONFIG"), env.getenv("HOME"), env.Dir, env.Now, env.Kinds
	to.Waiting = func(why string) { fmt.Fprintln(env.Stderr, cleanText(why)) }
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		to.Server, to.CA = cmp.Or(to.Server, env.getenv("TERRIER_SERVER")), cmp.Or(to.CA, env.getenv("TERRIER_SERVER_CA"))
		to.Token = secret.New(env.getenv("TERRIER_TOKEN"))
		source := "TERRIER_TOKEN"
		if to.CA != "" && !filepath.IsAbs(to.CA) {
			to.CA = filepath.Join(env.Dir, to.CA)
		}
		if name := cmp.Or(*tokenFile, env.getenv("TERRIER_TOKEN_FILE")); name != "" {
			text, err := env.readFile(name, tokenBytes)
			if err != nil {
				return fmt.Errorf("reading the token: %w", err)
			}
			if to.Token = secret.New(strings.TrimSpace(string(text))); to.Token.Empty() {
				return usage("the file %s of the token is empty", name)
			}
			source = name
		}
		if strings.ContainsFunc(to.Token.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
			return usage("the token in %s is not valid: a token is one line of letters, digits and punctuation", source)
		}
		return nil
	}
	// An error means that the flag does not exist, which it does.
	_ = root.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	_ = root.RegisterFlagCompletionFunc("context", cobra.NoFileCompletions)
}

// tokenBytes bounds a token.
const tokenBytes = 64 << 10

// stacks connects to the cluster, or to a server alone.
func (c *cluster) stacks() (command.StackAPI, error) {
	s, namespace, err := c.connection.Stacks()
	c.connection.Namespace = namespace
	return s, err
}

// one connects and reads the name of the stack of a command.
func (c *cluster) one(ctx context.Context, name string) (command.StackAPI, query.Key, error) {
	s, err := c.stacks()
	if err != nil {
		return nil, query.Key{}, err
	}
	key, err := query.Find(ctx, c.connection.StackKinds(), s, name, c.connection.Namespace)
	return s, key, err
}

// ofStack runs a command about one stack, which its first argument names.
func (c *cluster) ofStack(do func(context.Context, command.StackAPI, query.Key) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, key, err := c.one(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, key)
	}
}

// names completes the names of stacks.
func (c *cluster) names(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(cmd, args, func(ctx context.Context) (map[string]string, error) {
		s, err := c.stacks()
		if err != nil {
			return nil, err
		}
		list, err := s.List(ctx, query.Filter{Namespace: c.connection.Namespace})
		found := map[string]string{}
		stacks := map[string]int{} // by name
		for _, st := range list {
			stacks[st.Name]++
		}
		for _, st := range list {
			name := st.Name
			if stacks[name] > 1 {
				name = c.connection.StackKinds().Spelled(st.Kind) + "/" + name
			}
			found[name] = st.Phase
		}
		return found, err
	})
}

// complete completes the first argument with names and what they are.
func complete(cmd *cobra.Command, args []string, names func(context.Context) (map[string]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
	defer cancel()
	found, err := names(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []cobra.Completion
	for _, name := range sortedKeys(found) {
		out = append(out, cobra.CompletionWithDesc(name, clean(found[name])))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (c *cluster) allFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.all, "all-namespaces", "A", false, "in all namespaces")
}

// filter reads the selection of stacks.
func (c *cluster) filter(ctx context.Context, args []string, selector string) (query.Filter, command.StackAPI, error) {
	s, err := c.stacks()
	if err != nil {
		return query.Filter{}, nil, err
	}
	f := query.Filter{Namespace: c.connection.Namespace, Selector: selector}
	if len(args) == 1 {
		if c.all {
			return f, nil, usage("--all-namespaces and the name of a stack exclude each other")
		}
		key, err := query.Find(ctx, c.connection.StackKinds(), s, args[0], f.Namespace)
		one := key.Filter()
		one.Selector = selector
		return one, s, err
	}
	if c.all {
		f.Namespace = ""
	}
	return f, s, nil
}

// tenantsOf connects to the cluster, or to a server alone, for commands about
// tenants.
func (c *cluster) tenantsOf() (command.TenantAPI, error) {
	t, namespace, err := c.connection.Tenants()
	c.connection.Namespace = namespace
	return t, err
}

// oneOf connects and reads the name of the object of a command.
func (c *cluster) oneOf(name string, kinds []string) (command.TenantAPI, query.Key, error) {
	t, err := c.tenantsOf()
	if err != nil {
		return nil, query.Key{}, err
	}
	key, err := query.ParseTenantsKey(name, c.connection.Namespace, kinds...)
	return t, key, err
}

// ofTenants is ofStack for an object of these kinds.
func (c *cluster) ofTenants(kinds []string, do func(context.Context, command.TenantAPI, query.Key) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, key, err := c.oneOf(args[0], kinds)
		if err != nil {
			return err
		}
		return do(cmd.Context(), t, key)
	}
}

// tenantNames completes the names of tenants.
func (c *cluster) tenantNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.byTenants(cmd, args, func(v query.Tenant) (string, string) { return v.Name, v.State })
}

// templateNames completes the names of templates that have tenants.
func (c *cluster) templateNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.byTenants(cmd, args, func(v query.Tenant) (string, string) { return v.Template, v.Registry })
}

// registryNames completes the names of registries that have tenants.
func (c *cluster) registryNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.byTenants(cmd, args, func(v query.Tenant) (string, string) { return v.Registry, "" })
}

func (c *cluster) byTenants(cmd *cobra.Command, args []string, of func(query.Tenant) (name, about string)) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(cmd, args, func(ctx context.Context) (map[string]string, error) {
		t, err := c.tenantsOf()
		if err != nil {
			return nil, err
		}
		list, err := t.List(ctx, query.TenantFilter{Namespace: c.connection.Namespace})
		found := map[string]string{}
		for _, v := range list.Items {
			if name, about := of(v); name != "" {
				found[name] = about
			}
		}
		return found, err
	})
}

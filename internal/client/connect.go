package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

// Connection says which cluster or which server is meant, and as which user.
type Connection struct {
	Kubeconfig string // the file of --kubeconfig
	Path       string // files as in KUBECONFIG
	Context    string
	Namespace  string

	Server string      // the address of the server; found in the cluster if empty
	Token  secret.Text // with Server: the cluster is not asked, and no kubeconfig is read
	CA     string      // a file with the certificate authority of Server; the system's if empty

	Kinds query.Kinds // of stacks; all if empty

	// Waiting tells the user why a request is sent again: of several controllers one has just
	// ended. If it is nil, no request is sent again.
	Waiting func(why string)

	Dir  string // in which "terrier up" may have left a kubeconfig
	Home string
	Now  func() time.Time
}

// ReasonNeedsCluster is of what a command cannot do over the HTTP API of a server.
const ReasonNeedsCluster = "NeedsKubeconfig"

// LocalKubeconfig is where "terrier up" leaves its kubeconfig, below its directory.
const LocalKubeconfig = ".terrier/kubeconfig"

// StackKinds are the kinds of stacks that commands know.
func (c Connection) StackKinds() query.Kinds {
	if len(c.Kinds.All()) == 0 {
		return kinds.All()
	}
	return c.Kinds
}

// Direct reports whether a command speaks to the server alone.
func (c Connection) Direct() bool { return c.Server != "" && !c.Token.Empty() }

// Stacks returns the stacks that the user may see, and the namespace of a command
// that names none. It sends no request yet.
func (c Connection) Stacks() (command.StackAPI, string, error) {
	if c.Direct() {
		direct, namespace, err := c.direct()
		return newStacks(direct), namespace, err
	}
	return Connect(c)
}

// Tenants is Stacks for registries, templates and tenants.
func (c Connection) Tenants() (command.TenantAPI, string, error) {
	if c.Direct() {
		direct, namespace, err := c.direct()
		return &Tenants{direct}, namespace, err
	}
	return ConnectTenants(c)
}

// Connect returns the stacks that the user of the kubeconfig may see, and the
// namespace of a command that names none. It sends no request yet.
func Connect(c Connection) (*command.Stacks, string, error) {
	config, namespace, err := c.config()
	if err != nil {
		return nil, "", err
	}
	kube, err := access.NewClient(config, c.StackKinds())
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	find := func() (peer, error) {
		s, err := c.found(context.Background(), kube, config)
		if err != nil {
			return peer{}, err
		}
		return s.find()
	}
	stacks := command.New(kube, c.StackKinds(), &Records{&conn{find: sync.OnceValues(find), waiting: c.Waiting}}, c.Now)
	stacks.Git = gitOf
	return stacks, namespace, nil
}

// gitOf is a client for the repository of a source, which the user named: any host is allowed.
func gitOf(repository *url.URL) (*outbound.Client, error) {
	port := cmp.Or(repository.Port(), map[string]string{"http": "80", "https": "443"}[repository.Scheme])
	allow, err := outbound.ParseAllow(net.JoinHostPort(repository.Hostname(), port))
	if err != nil {
		return nil, fault.New(fault.Invalid, source.ReasonURL, err)
	}
	return outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true, Proxy: true}), nil
}

// ConnectTenants is Connect for registries, templates and tenants.
func ConnectTenants(c Connection) (*command.Tenants, string, error) {
	if c.Direct() {
		return nil, "", fault.New(fault.Invalid, ReasonNeedsCluster, errors.New("this command reads objects of another operator in the cluster, which takes a kubeconfig"))
	}
	stacks, namespace, err := Connect(c)
	if err != nil {
		return nil, "", err
	}
	config, _, err := c.config()
	if err != nil {
		return nil, "", err
	}
	return command.NewTenants(stacks, config), namespace, nil
}

// config is how the cluster is reached, and the namespace of a command that names
// none.
func (c Connection) config() (*rest.Config, string, error) {
	loader, err := c.loader()
	if err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) && c.Server != "" {
		return nil, "", fault.New(fault.Invalid, ReasonForeignServer, fmt.Errorf("there is no token for the server at %s: name it with TERRIER_TOKEN, or its file with TERRIER_TOKEN_FILE or --token-file", c.Server))
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, errors.New(
			"no cluster is configured: start one in this directory with terrier up, name a kubeconfig with --kubeconfig, or name a server with --server and a token with TERRIER_TOKEN or TERRIER_TOKEN_FILE"))
	}
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("no cluster is configured: %w", err))
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	// The API server limits its clients itself. A limit here would report the end of a
	// command's --timeout as an error of its own.
	config.UserAgent, config.QPS = query.ClientAgent, -1
	return config, cmp.Or(c.Namespace, namespace), nil
}

// loader chooses the kubeconfig: that of --kubeconfig, those of KUBECONFIG, that of
// "terrier up" in this directory, the one at home, the pod's own.
func (c Connection) loader() (clientcmd.ClientConfig, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	switch local := filepath.Join(c.Dir, LocalKubeconfig); {
	case c.Kubeconfig != "":
	case c.Path != "":
		rules.Precedence = filepath.SplitList(c.Path)
	default:
		own, err := readLocal(local)
		if err != nil {
			return nil, err
		}
		if own != nil {
			return clientcmd.NewDefaultClientConfig(*own, overrides), nil
		}
		if c.Home != "" {
			rules.Precedence = []string{filepath.Join(c.Home, ".kube", "config")}
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}

// readLocal reads the kubeconfig of this directory. The user did not name it, and
// it may belong to another user, so it may start no program and read no file.
func readLocal(path string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading %s: %w", path, err))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	foreign := info.Mode().Perm()&0o077 != 0 // "terrier up" writes it for its owner only
	for _, a := range config.AuthInfos {
		foreign = foreign || a.Exec != nil || a.AuthProvider != nil || a.TokenFile != "" || a.ClientKey != "" || a.ClientCertificate != ""
	}
	if foreign {
		return nil, fault.New(fault.Denied, access.ReasonNoKubeconfig, fmt.Errorf("%s was not written by a control plane: name it with --kubeconfig if it is to be trusted", path))
	}
	return config, nil
}

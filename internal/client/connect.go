package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
)

// Connection says which cluster is meant and who asks, the way kubectl is told.
type Connection struct {
	Kubeconfig string // a file that somebody named
	Path       string // files as in KUBECONFIG
	Context    string
	Namespace  string
	Server     string // of the records; found in the cluster if empty

	Dir  string // where a control plane of its own may have been started
	Home string
	Now  func() time.Time
}

// LocalKubeconfig is where a control plane that was started in a directory
// leaves its kubeconfig.
const LocalKubeconfig = ".terrier/kubeconfig"

// Connect returns the stacks that the caller may see and the namespace that is
// meant when none is named. It speaks to nobody yet.
func Connect(c Connection) (*command.Stacks, string, error) {
	config, namespace, err := c.config()
	if err != nil {
		return nil, "", err
	}
	kube, err := access.NewClient(config)
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	find := func() (query.Records, error) {
		ctx, cancel := context.WithTimeout(context.Background(), requestTime)
		defer cancel()
		s, err := findServer(ctx, kube, c.Server)
		if err != nil {
			return nil, err
		}
		return s.records(config)
	}
	return command.New(kube, &found{sync.OnceValues(find)}, c.Now), namespace, nil
}

// config is how the cluster is reached, and the namespace that is meant.
func (c Connection) config() (*rest.Config, string, error) {
	loader, err := c.loader()
	if err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("no cluster is configured: %w", err))
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	config.UserAgent, config.QPS, config.Burst = query.ClientAgent, 50, 100
	return config, cmp.Or(c.Namespace, namespace), nil
}

// loader chooses the kubeconfig: the one that was named, those of KUBECONFIG,
// that of a control plane started here, the one at home, the pod's own.
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

// readLocal reads a kubeconfig that nobody named. It may have come with the
// files of somebody else, so it gets to start no program and read no file.
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
	foreign := info.Mode().Perm()&0o077 != 0 // a control plane writes it for its owner only
	for _, a := range config.AuthInfos {
		foreign = foreign || a.Exec != nil || a.AuthProvider != nil || a.TokenFile != "" || a.ClientKey != "" || a.ClientCertificate != ""
	}
	if foreign {
		return nil, fault.New(fault.Denied, access.ReasonNoKubeconfig, fmt.Errorf("%s was not written by a control plane: name it with --kubeconfig if it is to be trusted", path))
	}
	return config, nil
}

// server is the Terrier server of a cluster.
type server struct {
	base *url.URL
	ca   []byte // PEM; empty if a public authority vouches for it
}

// findServer reads in the cluster, as the caller, how the server is reached.
func findServer(ctx context.Context, kube client.Reader, override string) (server, error) {
	var m corev1.ConfigMap
	err := kube.Get(ctx, types.NamespacedName{Namespace: access.ServerNamespace, Name: access.ServerConfigMap}, &m)
	if err != nil && override == "" {
		err = access.Fault(err, "the address of the server (the ConfigMap "+access.ServerNamespace+"/"+access.ServerConfigMap+")")
		if fault.Of(err) == fault.Missing {
			err = fault.New(fault.Missing, access.ReasonNoServer, errors.New("this cluster says nothing of a Terrier server, which keeps logs and plans"))
		}
		return server{}, err
	}
	address := cmp.Or(override, m.Data[access.ServerURLKey])
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil {
		return server{}, fault.New(fault.Invalid, access.ReasonNoServer, fmt.Errorf("%q is not the https address of a server", address))
	}
	return server{base, []byte(m.Data[access.ServerCAKey])}, nil
}

// records are those that the server keeps, read with the caller's own token.
func (s server) records(config *rest.Config) (query.Records, error) {
	c, err := s.client(config)
	if err != nil {
		return nil, err
	}
	return NewRemote(s.base, c), nil
}

// client sends requests to the server with the caller's own token.
func (s server) client(config *rest.Config) (*http.Client, error) {
	if config.BearerToken == "" && config.BearerTokenFile == "" && config.ExecProvider == nil && config.AuthProvider == nil {
		return nil, fault.New(fault.Denied, access.ReasonNoToken, errors.New("the server knows people by their token, and the kubeconfig holds none"))
	}
	allow, err := outbound.ParseAllow(hostPort(s.base))
	if err != nil {
		return nil, fault.New(fault.Invalid, access.ReasonNoServer, err)
	}
	c, err := outbound.New(outbound.Policy{Allow: allow, Proxy: true}).HTTP(outbound.Options{CA: s.ca})
	if err != nil {
		return nil, err
	}
	c.Timeout = 0
	// Nothing of the kubeconfig but what stands for the caller.
	c.Transport, err = rest.HTTPWrappersForConfig(&rest.Config{
		BearerToken: config.BearerToken, BearerTokenFile: config.BearerTokenFile,
		ExecProvider: config.ExecProvider, AuthProvider: config.AuthProvider, AuthConfigPersister: config.AuthConfigPersister,
		UserAgent: query.ClientAgent, Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile},
	}, c.Transport)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }

// found are Records whose server is looked for when they are first asked.
type found struct{ find func() (query.Records, error) }

func (f *found) Runs(ctx context.Context, id query.StackID) ([]query.Report, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Runs(ctx, id)
}

func (f *found) Run(ctx context.Context, id query.StackID, run string) (query.Report, error) {
	r, err := f.find()
	if err != nil {
		return query.Report{}, err
	}
	return r.Run(ctx, id, run)
}

func (f *found) Log(ctx context.Context, id query.StackID, run string, follow bool) (io.ReadCloser, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Log(ctx, id, run, follow)
}

func (f *found) Plan(ctx context.Context, id query.StackID, digest string) (io.ReadCloser, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Plan(ctx, id, digest)
}

// ConnectTenants is Connect for tenants.
func ConnectTenants(c Connection) (*command.Tenants, string, error) {
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

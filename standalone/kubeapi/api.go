package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// api is a running kube-apiserver.
type api struct {
	config *rest.Config // its own administrator, see Server.Config
	failed <-chan error // has a value if it ended without being closed
	close  func()
}

// startAPI starts kube-apiserver on listener. It goes through its options, as its
// command does, but not through the command, which takes the process's signals.
func startAPI(ctx context.Context, listener *net.TCPListener, storeEndpoint string, k keys, authentication string) (*api, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := apiOptions(listener, storeEndpoint, k)
	s.Authentication.AuthenticationConfigFile = authentication
	prepared, config, err := prepareAPI(ctx, s, listener)
	if err != nil {
		cancel()
		return nil, err
	}
	failed := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() {
		if err := prepared(ctx); ctx.Err() == nil {
			failed <- errors.Join(err, errors.New("it stopped serving"))
		}
	})
	return &api{config: config, failed: failed, close: func() {
		cancel()
		waitFor(&running, stopAPIWithin)
	}}, nil
}

func apiOptions(listener *net.TCPListener, storeEndpoint string, k keys) *options.ServerRunOptions {
	address := listener.Addr().(*net.TCPAddr)
	s := options.NewServerRunOptions()
	s.Etcd.StorageConfig.Transport.ServerList = []string{storeEndpoint}
	s.Etcd.EncryptionProviderConfigFilepath = k.encryption

	s.SecureServing.Listener = listener
	s.SecureServing.BindAddress = address.IP
	s.SecureServing.BindPort = address.Port
	s.SecureServing.ServerCert.CertKey.CertFile = k.server
	s.SecureServing.ServerCert.CertKey.KeyFile = k.server

	// No certificate opens the server: one in system:masters could not be revoked.
	s.Authentication.Anonymous.Allow = false
	s.Authentication.TokenFile.TokenFile = k.tokens
	s.Authentication.ServiceAccounts.Issuers = []string{"https://" + serviceName}
	s.Authentication.ServiceAccounts.KeyFiles = []string{k.serviceAccount}
	s.ServiceAccountSigningKeyFile = k.serviceAccount
	s.Authorization.Modes = []string{"RBAC"}

	// There is one server, and no network of services or pods behind it. The two
	// addresses must be of one family, and nothing is ever reached by them.
	s.GenericServerRunOptions.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	s.ServiceClusterIPRanges = "10.43.0.0/16"
	s.EndpointReconcilerType = "none"
	s.Features.EnableProfiling = false
	s.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = stopWatchesWithin
	s.Admission.GenericAdmission.DisablePlugins = []string{ // each prepares a pod for a kubelet
		"ServiceAccount", "TaintNodesByCondition", "DefaultTolerationSeconds",
		"DefaultStorageClass", "StorageObjectInUseProtection",
	}
	if k.epoch != "" {
		addStamps(s.Admission, k.epoch)
	}
	return s
}

// prepareAPI builds the chain of servers and returns what runs it until its
// context ends.
func prepareAPI(ctx context.Context, s *options.ServerRunOptions, listener *net.TCPListener) (func(context.Context) error, *rest.Config, error) {
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, nil, err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return nil, nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, nil, utilerrors.NewAggregate(errs)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, nil, err
	}
	definitions := &config.ApiExtensions.GenericConfig.Config
	definitions.AggregatedDiscoveryGroupManager = behind{definitions.AggregatedDiscoveryGroupManager}
	hosts := allowedHosts(listener.Addr().(*net.TCPAddr))
	outermost := &config.Aggregator.GenericConfig.Config
	build := outermost.BuildHandlerChainFunc
	outermost.BuildHandlerChainFunc = func(inner http.Handler, c *genericapiserver.Config) http.Handler {
		return checkHost(hosts, build(warnOfWorkloads(inner), c))
	}
	ready, err := config.Complete()
	if err != nil {
		return nil, nil, err
	}
	chain, err := app.CreateServerChain(ready)
	if err != nil {
		return nil, nil, err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return nil, nil, err
	}
	loopback := rest.CopyConfig(chain.GenericAPIServer.LoopbackClientConfig)
	loopback.QPS = -1 // the server's own fairness is limit enough
	// The server's own clients speak protobuf, which no custom resource can: each
	// client chooses by the kind.
	loopback.ContentType = ""
	return prepared.Run, loopback, nil
}

// waitReady returns when every check of the server says ok.
func (a *api) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return fmt.Errorf("making a client of the Kubernetes API server: %w", err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-a.failed:
			return false, err
		default:
		}
		last = client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the Kubernetes API server at %s: %w", a.config.Host, errors.Join(err, last))
	}
	return nil
}

// allowedHosts are the names that a client on this machine may use for address.
func allowedHosts(address *net.TCPAddr) map[string]bool {
	port := strconv.Itoa(address.Port)
	hosts := map[string]bool{}
	for _, name := range []string{"127.0.0.1", "::1", "localhost", serviceName, address.IP.String()} {
		hosts[net.JoinHostPort(name, port)] = true
	}
	return hosts
}

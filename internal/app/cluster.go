package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/fault"
)

// cluster is the ControlPlane of an existing cluster.
type cluster struct {
	ClusterConfig
	kubeconfig, context string
	http                string // where the HTTP API listens
	now                 func() time.Time
	progress            io.Writer
}

// joined is a cluster of which this process is the active controller.
type joined struct {
	cluster
	config  *rest.Config
	keys    *installation.Keys
	lead    *leadership // nil without a Lease, and for a replica
	replica *replica    // nil unless stacks are shared
	lock    *os.File    // of the data directory
	shards  division    // as this process, which shares no stacks, found it
	hosts   []string    // of the HTTP API
}

// Start implements ControlPlane: it returns once this process is active. First
// it takes the Lease, which elects one of all controllers, then the lock of
// the data directory, which a process holds as long as it lives: the previous
// holder has really ended.
func (c cluster) Start(ctx context.Context, dir, _ string, log *slog.Logger) (_ Running, err error) {
	j := &joined{cluster: c}
	if j.config, err = c.connect(); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(c.http)
	if err != nil {
		return nil, fault.New(fault.Invalid, "Usage", fmt.Errorf("--http-address %q is not host:port", c.http))
	}
	if c.Keys == installation.InSecret {
		if err := j.openKeys(ctx, dir); err != nil {
			return nil, err
		}
	}
	if c.Lease != "" && !c.Share {
		if j.lead, err = takeLead(ctx, j.config, c.ClusterConfig, newIdentity(), nil, c.now, c.say); err != nil {
			return nil, err
		}
		if err := c.alone(ctx, j.config, log); err != nil {
			return nil, errors.Join(err, j.Wait())
		}
	}
	if j.lock, err = c.lockDir(ctx, dir); err == nil && c.Share {
		if j.replica, err = c.join(ctx, j.config, dir); err == nil {
			err = j.replica.claim(ctx, j.keys)
		}
	}
	if err == nil && j.lead != nil {
		j.shards, err = c.divided(ctx, j.config, dir, log)
	}
	if err == nil && j.keys == nil {
		err = j.openKeys(ctx, dir)
	}
	if err == nil && j.lead != nil {
		err = j.lead.claim(ctx, j.keys, dir)
	}
	if err == nil && j.keys.Shared() {
		err = j.keys.Mark(dir)
	}
	if err == nil {
		j.hosts = append(slices.Clone(c.Hosts), loopbackHosts(host)...)
		_, _, err = j.Certificate()
	}
	if err != nil {
		return nil, errors.Join(err, j.Wait())
	}
	log.Info("this controller is active", "lease", c.Lease, "cluster", j.config.Host)
	return j, nil
}

// openKeys opens the keys of the installation. Files are read under the lock of the data
// directory. A Secret is shared with controllers that wait, which have the same keys.
func (j *joined) openKeys(ctx context.Context, dir string) error {
	c, err := client.New(j.config, client.Options{})
	if err != nil {
		return err
	}
	if j.Keys == installation.InSecret {
		if err := ensureServerNamespace(ctx, c); err != nil {
			return err
		}
	}
	j.keys, err = installation.Open(ctx, installation.Options{
		Keys: j.Keys, Dir: dir, Namespace: access.ServerNamespace, Lease: j.Lease, Client: c, Now: j.now, Progress: j.say,
	})
	return err
}

// InstallationKeys implements keyed.
func (j *joined) InstallationKeys() *installation.Keys { return j.keys }

func (c cluster) say(format string, args ...any) {
	fmt.Fprintf(c.progress, "terrier: "+format+"\n", args...)
}

// connect reads the kubeconfig, or what a pod is given.
func (c cluster) connect() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fault.New(fault.Missing, "KubeconfigMissing", errors.New(
			"there is no kubeconfig, and this is no pod: name a kubeconfig with --kubeconfig, or run terrier up, which needs no cluster"))
	}
	if err != nil {
		return nil, fault.New(fault.Missing, "KubeconfigMissing", fmt.Errorf("finding the cluster: %w", err))
	}
	config.QPS = -1 // the API server limits its clients itself
	config.UserAgent = "terrier-controller"
	return config, nil
}

// lockDir locks the data directory for this process, waiting for the process
// that holds it.
func (c cluster) lockDir(ctx context.Context, dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the data directory: %w", err)
	}
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		if !said {
			holder, _ := os.ReadFile(path)
			c.say("waiting for process %s to release the data directory", strings.TrimSpace(string(holder)))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", path, err), f.Close())
	}
	return f, nil
}

func (j *joined) Config() *rest.Config { return rest.CopyConfig(j.config) }

func (j *joined) Kubeconfig() string { return j.kubeconfig }

func (j *joined) Address() string {
	if u, err := url.Parse(j.config.Host); err == nil && u.Host != "" {
		return u.Host
	}
	return j.config.Host
}

// Certificate implements Running: a new certificate, which is in this process only.
func (j *joined) Certificate() (tls.Certificate, []byte, error) {
	cert, ca, err := j.keys.Certificate(j.hosts, j.now())
	if err != nil {
		err = fmt.Errorf("creating a certificate for the HTTP API: %w", err)
	}
	return cert, ca, err
}

// Wait implements Running: everything else has ended, so another process may become active.
func (j *joined) Wait() error {
	var errs []error
	if j.lock != nil {
		errs = append(errs, j.lock.Close())
	}
	if j.lead != nil {
		j.lead.release()
	}
	if j.replica != nil {
		j.replica.release()
	}
	return errors.Join(errs...)
}

func (j *joined) Lost() <-chan struct{} {
	switch {
	case j.replica != nil:
		return j.replica.member.lost
	case j.lead != nil:
		return j.lead.lost
	}
	return nil
}

func (j *joined) Leads() error {
	switch {
	case j.replica != nil:
		return j.replica.check()
	case j.lead != nil:
		return j.lead.check()
	}
	return nil
}

package app

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
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

	"github.com/terrier-iac/terrier/internal/fault"
)

// cluster is the ControlPlane of an existing cluster.
type cluster struct {
	ClusterConfig
	kubeconfig, context string
	http                string // where the HTTP API listens
	lasting             bool   // the authority of its certificate is the same at each start
	now                 func() time.Time
	progress            io.Writer
}

// joined is a cluster of which this process is the active controller.
type joined struct {
	cluster
	config *rest.Config
	lead   *leadership // nil without a Lease
	lock   *os.File    // of the data directory
	cert   tls.Certificate
	ca     []byte
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
	if c.Lease != "" {
		if j.lead, err = takeLead(ctx, j.config, c.ClusterConfig, c.now, c.say); err != nil {
			return nil, err
		}
	}
	if j.lock, err = c.lockDir(ctx, dir); err == nil && j.lead != nil {
		err = j.lead.claim(ctx, dir)
	}
	if err == nil {
		err = j.certify(dir, append(slices.Clone(c.Hosts), loopbackHosts(host)...))
	}
	if err != nil {
		return nil, errors.Join(err, j.Wait())
	}
	log.Info("this controller is active", "lease", c.Lease, "cluster", j.config.Host)
	return j, nil
}

// certify makes the certificate of the HTTP API. Pods trust its authority, and outlive
// this process: then it is kept in the data directory.
func (j *joined) certify(dir string, hosts []string) (err error) {
	if j.lasting {
		j.cert, j.ca, err = signedByKept(filepath.Join(dir, "secrets", "http-authority"), hosts, j.now())
	} else {
		j.cert, j.ca, err = selfSigned(hosts, j.now())
	}
	if err != nil {
		return fmt.Errorf("creating a certificate for the HTTP API: %w", err)
	}
	return nil
}

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

// installationOf identifies the data directory by its secret.
func installationOf(dir string) (string, error) {
	if err := os.MkdirAll(filepath.Join(dir, "secrets"), 0o700); err != nil {
		return "", err
	}
	key, err := loadSecret(filepath.Join(dir, "secrets", "digests"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte("data directory\x00" + key.Reveal()))
	return hex.EncodeToString(sum[:8]), nil
}

func (j *joined) Config() *rest.Config { return rest.CopyConfig(j.config) }

func (j *joined) Kubeconfig() string { return j.kubeconfig }

func (j *joined) Address() string {
	if u, err := url.Parse(j.config.Host); err == nil && u.Host != "" {
		return u.Host
	}
	return j.config.Host
}

func (j *joined) Certificate() (tls.Certificate, []byte, error) { return j.cert, j.ca, nil }

// Wait implements Running: everything else has ended, so another process may become active.
func (j *joined) Wait() error {
	var errs []error
	if j.lock != nil {
		errs = append(errs, j.lock.Close())
	}
	if j.lead != nil {
		j.lead.release()
	}
	return errors.Join(errs...)
}

func (j *joined) Lost() <-chan struct{} {
	if j.lead == nil {
		return nil
	}
	return j.lead.lost
}

func (j *joined) Leads() error {
	if j.lead == nil {
		return nil
	}
	return j.lead.check()
}

// Package forge is a git server and a registry on loopback, for the examples of
// `terrier up`: what a company has of its own, in small.
//
// Git repositories are served over ssh to the owner of one key, for reading and writing,
// and over https to all, for reading. Images are served to one user with a password. It
// needs no other program, and refuses everything else.
//
// Start reading at Open.
package forge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/web"
)

// Options are what a forge needs.
type Options struct {
	Dir         string // for all its files
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Authority   []byte                                  // PEM, of the certificate
	Listen      func(name string) (net.Listener, error) // on loopback, with one port for each name
	Now         func() time.Time
	Log         *slog.Logger
}

// Forge is both servers.
type Forge struct {
	dir        string
	ssh, https net.Listener
	keys       keys
	log        *slog.Logger
	server     *http.Server
	stop       context.CancelFunc
	running    sync.WaitGroup
}

// Open starts both servers. Close ends them.
func Open(o Options) (_ *Forge, err error) {
	f := &Forge{dir: o.Dir, log: o.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := os.MkdirAll(f.path(repositories), 0o700); err != nil {
		return nil, fmt.Errorf("opening the git server: %w", err)
	}
	if f.ssh, err = o.Listen("ssh"); err != nil {
		return nil, err
	}
	if f.https, err = o.Listen("https"); err != nil {
		return nil, err
	}
	if f.keys, err = f.makeKeys(o.Authority); err != nil {
		return nil, err
	}
	disk := room.Of(f.path("registry"))
	images, err := source.NewRegistry(f.path("registry"), source.RegistryOptions{Now: o.Now, Room: func() (source.RegistryClaim, error) { return disk.Claim(0) }})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.server = web.Server(f.handler(images), &tls.Config{GetCertificate: o.Certificate, MinVersion: tls.VersionTLS12}, o.Log)
	f.running.Go(func() {
		if err := f.server.ServeTLS(f.https, "", ""); !errors.Is(err, http.ErrServerClosed) {
			f.log.Error("git server and registry of the examples ended", "err", err)
		}
	})
	f.running.Go(func() { f.serveSSH(ctx, f.ssh, f.sshConfig()) })
	return f, nil
}

// Close ends both servers, and what they are serving. The zero pointer has none.
func (f *Forge) Close() error {
	if f == nil {
		return nil
	}
	var errs []error
	if f.stop != nil {
		f.stop()
	}
	if f.server != nil {
		errs = append(errs, f.server.Close())
	}
	for _, l := range []net.Listener{f.ssh, f.https} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	f.running.Wait()
	return errors.Join(errs...)
}

// Addresses are the addresses of both servers, host:port. The zero pointer has none.
func (f *Forge) Addresses() []string {
	if f == nil {
		return nil
	}
	return []string{f.ssh.Addr().String(), f.https.Addr().String()}
}

// Info says how to use a forge.
type Info struct {
	SSH   string `json:"ssh"`   // host:port of git over ssh, for the user git
	HTTPS string `json:"https"` // host:port of git over https and of the registry
	Dir   string `json:"dir"`   // has the files of the constants below
}

// Files in the directory of a forge.
const (
	IdentityFile   = "id"            // the private key of the user git
	KnownHostsFile = "known_hosts"   // the key of the ssh server
	AuthorityFile  = "ca.crt"        // of the certificate of the https server
	LoginFile      = "registry-user" // USER:PASSWORD of the registry
	DockerFile     = "config.json"   // the same as a Docker configuration
)

// Info says how to use it; nil for the zero pointer.
func (f *Forge) Info() *Info {
	if f == nil {
		return nil
	}
	at := f.Addresses()
	return &Info{SSH: at[0], HTTPS: at[1], Dir: f.dir}
}

const repositories = "repositories"

func (f *Forge) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

// sshConfig lets in the owner of the one key as the user git.
func (f *Forge) sshConfig() *ssh.ServerConfig {
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "git" || string(key.Marshal()) != string(f.keys.user.PublicKey().Marshal()) {
			return nil, errors.New("the key is not the one of this server's user git")
		}
		return nil, nil
	}}
	config.AddHostKey(f.keys.host)
	return config
}

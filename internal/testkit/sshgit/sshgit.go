// Package sshgit is a git server over ssh for tests: the real programs of git behind an
// ssh server that checks the key of its client.
//
// It serves reading, and pushes where a test allows them, and only to the user git.
//
// Start reading at Serve.
package sshgit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Server serves the repositories below a directory.
type Server struct {
	Address  string       // host:port
	Sessions atomic.Int32 // programs that clients asked for
	Pushes   atomic.Bool  // clients may push

	root     string
	listener net.Listener
	all      sync.WaitGroup // goroutines
}

// NewSigner makes a key of a kind: rsa or ed25519.
func NewSigner(tb testing.TB, kind string) (ssh.Signer, any) {
	tb.Helper()
	var key any
	var err error
	if kind == "rsa" {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return signer, key
}

// NewIdentity returns a private key in PEM, and its public key.
func NewIdentity(tb testing.TB, passphrase string) (string, ssh.PublicKey) {
	tb.Helper()
	signer, key := NewSigner(tb, "ed25519")
	var block *pem.Block
	var err error
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), signer.PublicKey()
}

// Serve serves the repositories below root to the owner of a key, on loopback. A path
// without a leading slash is relative to root as well.
func Serve(tb testing.TB, root string, client ssh.PublicKey, hosts ...ssh.Signer) *Server {
	tb.Helper()
	return ServeAt(tb, "127.0.0.1:0", root, client, hosts...)
}

// ServeAt serves them at an address of this machine.
func ServeAt(tb testing.TB, address, root string, client ssh.PublicKey, hosts ...ssh.Signer) *Server {
	tb.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "git" || string(key.Marshal()) != string(client.Marshal()) {
			return nil, io.ErrClosedPipe
		}
		return nil, nil
	}}
	for _, h := range hosts {
		config.AddHostKey(h)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Address: l.Addr().String(), root: root, listener: l}
	tb.Cleanup(s.Close)
	s.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.handle(conn, config) })
		}
	})
	return s
}

// Close ends the server once its clients have ended.
func (s *Server) Close() {
	s.listener.Close()
	s.all.Wait()
}

// Known returns a line of known_hosts.
func (s *Server) Known(host ssh.Signer) []byte {
	return []byte(knownhosts.Line([]string{knownhosts.Normalize(s.Address)}, host.PublicKey()) + "\n")
}

func (s *Server) handle(conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		s.Sessions.Add(1)
		for req := range requests {
			if req.Type != "exec" {
				req.Reply(false, nil)
				continue
			}
			var command struct{ Text string }
			if ssh.Unmarshal(req.Payload, &command) != nil {
				return
			}
			req.Reply(true, nil)
			s.all.Go(func() { s.run(channel, command.Text) })
		}
	}
}

func (s *Server) run(channel ssh.Channel, command string) {
	defer channel.Close()
	program, path, ok := strings.Cut(command, " '")
	if !ok || program != "git-upload-pack" && (program != "git-receive-pack" || !s.Pushes.Load()) {
		io.WriteString(channel.Stderr(), "only git-upload-pack")
		return
	}
	cmd := exec.Command("git", strings.TrimPrefix(program, "git-"), filepath.Join(s.root, strings.TrimSuffix(path, "'")))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.root, "GIT_CONFIG_NOSYSTEM=1"}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	// As cmd.Stdin the channel would be waited for even when git has ended.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	go func() {
		io.Copy(stdin, channel)
		stdin.Close()
	}()
	status := struct{ Code uint32 }{0}
	if cmd.Run() != nil {
		status.Code = 128
	}
	channel.SendRequest("exit-status", false, ssh.Marshal(status))
}

package source

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/terrier-iac/terrier/internal/fault"
)

// sshSession speaks to a program of git on the other side of one connection: to
// git-upload-pack, or to git-receive-pack. It satisfies transport.UploadPackSession and
// transport.ReceivePackSession.
type sshSession struct {
	program string
	client  *ssh.Client
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	says    *head // the beginning of its standard error
	refs    *packp.AdvRefs
	stop    func() bool
}

// dial connects over ssh. The host's key has to be known: without a line of known_hosts
// for it there is no connection.
func (g *Git) dial(ctx context.Context, u *url.URL, program string) (*sshSession, error) {
	config, seen, err := g.sshConfig(u)
	if err != nil {
		return nil, err
	}
	address := sshAddress(u)
	conn, err := g.Out.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, gitFault("connecting", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		stop()
		conn.Close()
		return nil, sshFault(ctx, *seen, err)
	}
	s := &sshSession{program: program, client: ssh.NewClient(c, channels, requests), stop: stop}
	if err := s.start(u.Path); err != nil {
		s.Close()
		return nil, gitFault("starting "+program, err)
	}
	return s, nil
}

// identityFault says what is wrong with a private key, without a byte of it.
func identityFault(err error, open bool) error {
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return invalid(ReasonAuth, "the private key has a passphrase: add it to the Secret under password")
	case errors.Is(err, x509.IncorrectPasswordError):
		return invalid(ReasonAuth, "the passphrase does not open the private key: correct password in the Secret")
	case !open:
		return invalid(ReasonAuth, "the private key cannot be read with a passphrase: correct the key or password in the Secret, or remove password if the key has no passphrase")
	default:
		return invalid(ReasonAuth, "the private key cannot be read: the Secret needs it in PEM, from BEGIN to END")
	}
}

func sshAddress(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "22"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// sshConfig returns how to log in. What it points to becomes true once the
// host has proved who it is.
func (g *Git) sshConfig(u *url.URL) (*ssh.ClientConfig, *bool, error) {
	if g.Auth.Identity.Empty() {
		return nil, nil, invalid(ReasonAuth, "ssh needs a private key: set spec.secretRef to a Secret with the key under identity or ssh-privatekey")
	}
	var signer ssh.Signer
	var err error
	if g.Auth.Password.Empty() {
		signer, err = ssh.ParsePrivateKey([]byte(g.Auth.Identity.Reveal()))
	} else {
		signer, err = ssh.ParsePrivateKeyWithPassphrase([]byte(g.Auth.Identity.Reveal()), []byte(g.Auth.Password.Reveal()))
	}
	if err != nil {
		return nil, nil, identityFault(err, g.Auth.Password.Empty())
	}
	known, err := g.hostKeys(sshAddress(u))
	if err != nil {
		return nil, nil, err
	}
	seen := new(bool)
	config := &ssh.ClientConfig{
		User:              "git",
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyAlgorithms: hostKeyAlgorithms(known, sshAddress(u)),
		ClientVersion:     "SSH-2.0-terrier",
		Timeout:           20 * time.Second,
		HostKeyCallback: func(host string, remote net.Addr, key ssh.PublicKey) error {
			err := known(host, remote, key)
			*seen = err == nil
			return err
		},
	}
	if u.User != nil {
		config.User = u.User.Username()
	}
	return config, seen, nil
}

// hostKeyAlgorithms returns the algorithms of the keys that are known for a
// host, so that the host does not prove itself with another key that it has.
func hostKeyAlgorithms(known ssh.HostKeyCallback, address string) []string {
	var unknown *knownhosts.KeyError
	if !errors.As(known(address, &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &unknown) {
		return nil
	}
	var algorithms []string
	for _, k := range unknown.Want {
		if t := k.Key.Type(); t == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512)
		} else {
			algorithms = append(algorithms, t)
		}
	}
	return algorithms
}

// noKey is a key that no host has.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "none" }
func (noKey) Marshal() []byte { return nil }

func sshFault(ctx context.Context, proved bool, err error) error {
	var unknown *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("connecting: %w", context.Cause(ctx))
	case errors.As(err, &unknown) && len(unknown.Want) > 0:
		return unauthorized("connecting", errors.New("the host's key is not the one in known_hosts: compare it with the keys that the host publishes, and put their lines into the Secret under known_hosts if the host has changed its key"))
	case errors.As(err, &unknown):
		return unauthorized("connecting", errors.New("the host is not in known_hosts of the Secret: add its line there"))
	case errors.As(err, &revoked):
		return unauthorized("connecting", errors.New("the host's key is revoked in known_hosts"))
	case proved && !errors.Is(err, io.EOF) && !errors.As(err, new(net.Error)):
		return unauthorized("connecting", errors.New("the host does not accept the identity"))
	}
	return fault.New(fault.Broken, ReasonGit, fmt.Errorf("connecting: %w", err))
}

// start runs the program. The path is one quoted word of a command line
// for the shell of the other side; nothing of it reaches a shell here.
func (s *sshSession) start(path string) error {
	session, err := s.client.NewSession()
	if err != nil {
		return err
	}
	s.session, s.says = session, &head{left: 1024}
	session.Stderr = s.says
	if s.in, err = session.StdinPipe(); err != nil {
		return err
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return err
	}
	s.out = io.LimitReader(out, maxPack)
	switch {
	case strings.HasPrefix(path, "/~"):
		path = path[1:] // relative to the home directory there
	case strings.HasPrefix(path, "/./"):
		path = path[3:] // likewise, as git sends that of user@host:path
	}
	return session.Start(s.program + " '" + strings.ReplaceAll(path, "'", `'\''`) + "'")
}

func (s *sshSession) AdvertisedReferences() (*packp.AdvRefs, error) {
	return s.AdvertisedReferencesContext(context.Background())
}

func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	if s.refs != nil {
		return s.refs, nil
	}
	refs := packp.NewAdvRefs()
	err := refs.Decode(io.LimitReader(s.out, maxRefs))
	switch {
	case errors.Is(err, packp.ErrEmptyInput):
		// It has ended and said why on its standard error, which is complete
		// once Wait returns; how it ended says less.
		_ = s.session.Wait()
		return nil, fmt.Errorf("%w: %q", transport.ErrRepositoryNotFound, s.says)
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && refs.IsEmpty() && s.program != transport.ReceivePackServiceName:
		return nil, transport.ErrEmptyRemoteRepository
	case err != nil:
		return nil, err
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	s.refs = refs
	return refs, nil
}

// UploadPack asks for a pack and returns the answer, whose content is the pack.
func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := req.UploadRequest.Encode(s.in); err != nil {
		return nil, fmt.Errorf("asking for a pack: %w", err)
	}
	if err := pktline.NewEncoder(s.in).EncodeString("done\n"); err != nil {
		return nil, fmt.Errorf("asking for a pack: %w", err)
	}
	resp := packp.NewUploadPackResponse(req)
	if err := resp.Decode(io.NopCloser(s.out)); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return resp, nil
}

// ReceivePack pushes: it sends a pack with the change of references, and returns what the
// server says of it.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	if err := req.Encode(s.in); err != nil {
		return nil, fmt.Errorf("sending a pack: %w", err)
	}
	out := io.Reader(s.out)
	if req.Capabilities.Supports(capability.Sideband64k) {
		d := sideband.NewDemuxer(sideband.Sideband64k, out)
		d.Progress = req.Progress
		out = d
	}
	report := packp.NewReportStatus()
	if err := report.Decode(out); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return report, report.Error()
}

// Close ends the connection, and the remote process with it.
func (s *sshSession) Close() error {
	s.stop()
	return s.client.Close()
}

// maxPack bounds what is read over one connection.
const maxPack = 1 << 30

// head keeps the beginning of what is written to it.
type head struct {
	text strings.Builder
	left int
}

func (h *head) Write(p []byte) (int, error) {
	n := min(h.left, len(p))
	h.left -= n
	h.text.Write(p[:n])
	return len(p), nil
}

func (h *head) String() string { return h.text.String() }

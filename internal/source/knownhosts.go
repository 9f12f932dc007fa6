package source

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// publicHosts are the keys of large public hosts, as each of them publishes them.
// TestPublicHostsHaveTheirKeys has the fingerprints that they publish beside them.
//
//go:embed ssh_known_hosts
var publicHosts []byte

// hostKeys returns who may answer at an address: the known_hosts of the Secret, if it
// has some; else those of the operator, if they know the address; else the keys of
// public hosts. A host that none of them knows is refused before it is asked.
func (g *Git) hostKeys(address string) (ssh.HostKeyCallback, error) {
	if len(g.Auth.KnownHosts) > 0 {
		return g.knownHosts("known_hosts of the Secret", g.Auth.KnownHosts)
	}
	for _, of := range []struct {
		name  string
		lines []byte
	}{{"the known_hosts of the operator", g.KnownHosts}, {"the built-in known_hosts", publicHosts}} {
		known, err := g.knownHosts(of.name, of.lines)
		if err != nil {
			return nil, err
		}
		if knows(known, address) {
			return known, nil
		}
	}
	return nil, invalid(ReasonAuth, "the host %s is in no known_hosts: add its line to the Secret under known_hosts (ssh-keyscan prints it; compare it with what the host publishes), "+
		"or have the operator add it to the file of --ssh-known-hosts", address)
}

// knows reports whether there is a line for an address.
func knows(known ssh.HostKeyCallback, address string) bool {
	err := known(address, &net.TCPAddr{IP: net.IPv4zero}, noKey{})
	var unknown *knownhosts.KeyError
	return err != nil && (!errors.As(err, &unknown) || len(unknown.Want) > 0)
}

// knownHosts reads host keys; the library takes them only from a file.
func (g *Git) knownHosts(name string, lines []byte) (ssh.HostKeyCallback, error) {
	var known ssh.HostKeyCallback
	err := scratch(g.Scratch, func(dir string) error {
		f, err := os.CreateTemp(dir, "known_hosts")
		if err != nil {
			return err
		}
		_, err = f.Write(lines)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if known, err = knownhosts.New(f.Name()); err != nil {
			// The error begins with the name of the scratch file.
			return invalid(ReasonAuth, "reading %s: %s", name, strings.TrimPrefix(err.Error(), "knownhosts: "+f.Name()))
		}
		return nil
	})
	return known, err
}

// ReadKnownHosts reads the file of an operator, which is read again for each connection
// since it may be mounted from a ConfigMap.
func ReadKnownHosts(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxKnownHosts {
		err = fmt.Errorf("it has %d bytes, and at most %d are read", info.Size(), maxKnownHosts)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the file of --ssh-known-hosts: %w", err)
	}
	return b, nil
}

// maxKnownHosts bounds the file of an operator.
const maxKnownHosts = 1 << 20

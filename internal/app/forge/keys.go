package forge

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// keys are the secrets of a forge.
type keys struct {
	host, user ssh.Signer
	password   string // of the registry
}

// registryUser is the user of the registry.
const registryUser = "alustan"

// makeKeys makes the secrets that are not there yet, and writes the files by which clients
// use the servers at their present addresses.
func (f *Forge) makeKeys(authority []byte) (k keys, err error) {
	if k.host, err = signer(f.path("host_key")); err != nil {
		return k, err
	}
	if k.user, err = signer(f.path(IdentityFile)); err != nil {
		return k, err
	}
	login, err := once(f.path(LoginFile), func() ([]byte, error) { return []byte(registryUser + ":" + rand.Text()), nil })
	if err != nil {
		return k, err
	}
	if len(login) <= len(registryUser)+1 {
		return k, fmt.Errorf("%s holds no password: remove the file, and start again", f.path(LoginFile))
	}
	k.password = string(login[len(registryUser)+1:])
	at := f.Addresses()
	docker, err := json.Marshal(map[string]any{"auths": map[string]any{at[1]: map[string]string{"username": registryUser, "password": k.password}}})
	if err != nil {
		return k, err
	}
	line := knownhosts.Line([]string{knownhosts.Normalize(at[0])}, k.host.PublicKey())
	for name, content := range map[string][]byte{KnownHostsFile: []byte(line + "\n"), DockerFile: docker, AuthorityFile: authority} {
		if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
			return k, fmt.Errorf("writing the keys of the git server: %w", err)
		}
	}
	return k, nil
}

// once returns what a file holds, after making it if need be.
func once(path string, make func() ([]byte, error)) ([]byte, error) {
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = make(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return nil, fmt.Errorf("writing the keys of the git server: %w", err)
	}
	return b, nil
}

// signer returns the private key in a file.
func signer(path string) (ssh.Signer, error) {
	text, err := once(path, func() ([]byte, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		block, err := ssh.MarshalPrivateKey(key, "terrier")
		if err != nil {
			return nil, err
		}
		return pem.EncodeToMemory(block), nil
	})
	if err != nil {
		return nil, err
	}
	s, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w: remove the file, and start again", path, err)
	}
	return s, nil
}

package kubeapi

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/secret"
)

// admin is who the kubeconfig's token stands for.
const admin = "terrier-admin"

// keys are the files and secrets that the control plane is opened and sealed with.
type keys struct {
	authority      []byte // the certificate that clients check the server by, PEM
	server         string // file: the serving certificate and its key
	serviceAccount string // file: what service account tokens are signed with
	encryption     string // file: what Secrets are sealed with in the store
	tokens         string // file: the one bearer token there is
	token          secret.Text
	epoch          string // of the stamps: see stamps
}

// ensureKeys makes what is missing, so a start that was cut short is finished by
// the next. What could be lost with a key is never made a second time: see
// ensureEncryption.
func ensureKeys(d dir, address string, now time.Time) (keys, error) {
	k := keys{
		server:         d.own("pki", "server.pem"),
		serviceAccount: d.own("pki", "service-account.pem"),
		encryption:     d.own("pki", "encryption.yaml"),
		tokens:         d.own("pki", "tokens.csv"),
	}
	ca, err := ensureAuthority(d.authority(), now)
	if err != nil {
		return keys{}, err
	}
	k.authority = ca.certificatePEM()
	if _, err := ensureServer(k.server, ca, address, now); err != nil {
		return keys{}, err
	}
	if err := ensureSigningKey(k.serviceAccount); err != nil {
		return keys{}, err
	}
	if err := ensureEncryption(k.encryption, d.store()); err != nil {
		return keys{}, err
	}
	if k.token, err = ensureToken(k.tokens); err != nil {
		return keys{}, err
	}
	k.epoch, err = ensureEpoch(d.own("stamps"))
	return k, err
}

// ensureEpoch keeps the epoch of the stamps. A directory that a release without epochs wrote
// gets one, so that what users wrote into its objects before does not count as a stamp.
// Deleting the file begins another epoch.
func ensureEpoch(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		epoch := base64.RawURLEncoding.EncodeToString(randomKey())[:epochLength]
		return epoch, writeFile(path, []byte(epoch))
	}
	if err != nil {
		return "", fmt.Errorf("reading the epoch of the stamps: %w", err)
	}
	if epoch := string(content); len(epoch) == epochLength {
		return epoch, nil
	}
	return "", fmt.Errorf("the file %s is damaged: delete it, and another epoch of stamps begins", path)
}

// epochLength is how many letters an epoch has: more than can be guessed.
const epochLength = 22

// ensureToken keeps the token in the file that kube-apiserver reads, and so
// never in an argument or an environment. Deleting the file revokes it.
func ensureToken(path string) (secret.Text, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		token := secret.New(base64.RawURLEncoding.EncodeToString(randomKey()))
		line := fmt.Sprintf("%s,%s,%s,system:masters\n", token.Reveal(), admin, admin)
		return token, writeFile(path, []byte(line))
	}
	if err != nil {
		return secret.Text{}, fmt.Errorf("reading the token: %w", err)
	}
	record, err := csv.NewReader(strings.NewReader(string(content))).Read()
	if err != nil || len(record) != 4 || len(record[0]) < 40 {
		// The parser's error may quote the file, so it stays here.
		return secret.Text{}, fmt.Errorf("the token file %s is damaged: delete it, and a new token is made", path)
	}
	return secret.New(record[0]), nil
}

// ensureEncryption makes the key that seals Secrets in the store. With another
// key the Secrets that are there could never be read again, so a store without
// its key is refused.
func ensureEncryption(path, store string) error {
	_, err := os.Stat(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for the key of the store: %w", err)
	}
	if _, err := os.Stat(store); err == nil {
		return fmt.Errorf("the key %s is gone, and the Secrets in %s cannot be read without it: put the key back from a backup, or move the store away to start empty", path, store)
	}
	return writeFile(path, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: first
        secret: %s
`, base64.StdEncoding.EncodeToString(randomKey())))
}

func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: the process ends if there is no randomness
	return key
}

package source

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// ReasonSignature is the reason of the fault of a commit or a tag that is not signed by one
// of the keys.
const ReasonSignature = "InvalidCommitSignature"

// GitVerify says what has to be signed, and by which keys. The zero value lets everything
// pass.
type GitVerify struct {
	Commit bool
	Tag    bool     // needs an annotated tag
	Keys   []string // public keys of OpenPGP in ASCII armour

	ssh []ssh.PublicKey
}

// The modes of Flux.
const (
	modeHead       = "HEAD"
	modeTag        = "Tag"
	modeTagAndHead = "TagAndHEAD"
)

// sshSuffix ends the names of public keys of SSH in a Secret, as Flux has it.
const sshSuffix = ".sshpub"

// GitVerifyFrom reads a mode as Flux has it: HEAD, Tag or TagAndHEAD, and a Secret of which
// each value is a public key: of SSH if its name ends in .sshpub, of OpenPGP otherwise.
func GitVerifyFrom(mode string, data map[string][]byte) (GitVerify, error) {
	v := GitVerify{Commit: mode == modeHead || mode == modeTagAndHead || mode == "head", Tag: mode == modeTag || mode == modeTagAndHead}
	if !v.Commit && !v.Tag {
		return v, invalid(ReasonSignature, "%.40q is no mode of verification: write HEAD, Tag or TagAndHEAD", mode)
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if strings.HasSuffix(name, sshSuffix) {
			if err := v.addSSH(name, data[name]); err != nil {
				return v, err
			}
			continue
		}
		ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(string(data[name])))
		if err == nil && len(ring) == 0 {
			err = errors.New("it has no key")
		}
		if err != nil {
			return v, invalid(ReasonSignature, "the public key %.100q cannot be read: %w: it is what gpg --armor --export prints, and the name of a key of SSH ends in %s", name, err, sshSuffix)
		}
		v.Keys = append(v.Keys, string(data[name]))
	}
	if len(v.Keys)+len(v.ssh) == 0 {
		return v, invalid(ReasonSignature, "there is no public key to verify signatures with: add what gpg --armor --export prints, or a public key of SSH under a name that ends in %s", sshSuffix)
	}
	return v, nil
}

// addSSH reads lines as authorized_keys has them.
func (v *GitVerify) addSSH(name string, lines []byte) error {
	before := len(v.ssh)
	for len(strings.TrimSpace(string(lines))) > 0 {
		key, _, _, rest, err := ssh.ParseAuthorizedKey(lines)
		if err != nil {
			return invalid(ReasonSignature, "the public key %.100q cannot be read: %w: it is a line as the file id_ed25519.pub has it", name, err)
		}
		v.ssh, lines = append(v.ssh, key), rest
	}
	if len(v.ssh) == before {
		return invalid(ReasonSignature, "the public key %.100q is empty: it is a line as the file id_ed25519.pub has it", name)
	}
	return nil
}

// rules is a digest of what has to be signed and by whom, empty if nothing has to.
func (v GitVerify) rules() string {
	if !v.Commit && !v.Tag {
		return ""
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%t %t %q", v.Commit, v.Tag, v.Keys) // a hash has no errors
	for _, key := range v.ssh {
		_, _ = h.Write(key.Marshal())
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// signedObject is a commit or a tag.
type signedObject interface {
	EncodeWithoutSignature(o plumbing.EncodedObject) error
	Verify(armor string) (*openpgp.Entity, error)
}

// check verifies a commit and the tag that led to it, and returns whose signatures they have.
func (v GitVerify) check(store *filesystem.Storage, at gitCommit, commit *object.Commit) (Signature, error) {
	var by Signature
	var err error
	if v.Commit {
		if by, err = v.signed("the commit "+commit.Hash.String()[:12], commit.PGPSignature, commit); err != nil {
			return Signature{}, err
		}
	}
	if !v.Tag {
		return by, nil
	}
	tag, err := object.GetTag(store, at.want)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return Signature{}, invalid(ReasonSignature, "the tag has to be signed, and only an annotated tag can be: make it with git tag -s")
	}
	if err != nil {
		return Signature{}, gitFault("reading the tag", err)
	}
	// The signature covers the name and the commit. A server could show another tag that was
	// signed once, under this name.
	if tag.Name != at.tag || tag.Target != at.commit {
		return Signature{}, invalid(ReasonSignature, "the tag %s leads to a signed tag %.100q of the commit %.12s, and not to one of this name and the commit %.12s", at.tag, tag.Name, tag.Target, at.commit)
	}
	of, err := v.signed("the tag "+tag.Name, tag.PGPSignature, tag)
	switch {
	case err != nil:
		return Signature{}, err
	case !v.Commit:
		return of, nil
	}
	by.TagBy = of.By
	return by, nil
}

// signed finds the key that made a signature.
func (v GitVerify) signed(what, signature string, of signedObject) (Signature, error) {
	switch {
	case signature == "":
		return Signature{}, invalid(ReasonSignature, "%s is not signed", what)
	case strings.Contains(signature, "BEGIN "+sshsig.PEMType):
		key, err := v.signedSSH(signature, of)
		if err != nil {
			return Signature{}, invalid(ReasonSignature, "%s is signed by none of the %d keys of SSH: %w", what, len(v.ssh), err)
		}
		return Signature{Kind: SignedSSH, By: ssh.FingerprintSHA256(key)}, nil
	}
	var failures []error
	for _, armor := range v.Keys {
		entity, err := of.Verify(armor)
		if err == nil {
			return Signature{Kind: SignedOpenPGP, By: strings.ToUpper(hex.EncodeToString(entity.PrimaryKey.Fingerprint))}, nil
		}
		failures = append(failures, err)
	}
	return Signature{}, invalid(ReasonSignature, "%s is signed by none of the %d keys: %w", what, len(v.Keys), fmt.Errorf("verifying: %w", errors.Join(failures...)))
}

// gitNamespace is what signatures of git by SSH are for, so that no other signature of the
// key counts.
const gitNamespace = "git"

// signedSSH finds the key of SSH that made a signature.
func (v GitVerify) signedSSH(armor string, of signedObject) (ssh.PublicKey, error) {
	signature, err := sshsig.Unarmor([]byte(armor))
	if err != nil {
		return nil, fmt.Errorf("reading the signature: %w", err)
	}
	// OpenSSH refuses signatures over SHA-1 as well.
	if signature.Signature.Format == ssh.KeyAlgoRSA {
		return nil, errors.New("the signature is one of RSA with SHA-1, which does not count")
	}
	var content plumbing.MemoryObject
	if err := of.EncodeWithoutSignature(&content); err != nil {
		return nil, fmt.Errorf("reading what is signed: %w", err)
	}
	for _, key := range v.ssh {
		if ssh.FingerprintSHA256(key) != ssh.FingerprintSHA256(signature.PublicKey) {
			continue
		}
		r, err := content.Reader()
		if err != nil {
			return nil, err
		}
		return key, errors.Join(sshsig.Verify(r, signature, key, signature.HashAlgorithm, gitNamespace), r.Close())
	}
	return nil, fmt.Errorf("it is one of the key %s", ssh.FingerprintSHA256(signature.PublicKey))
}

// keyID is a short name of the key: the ID of one of OpenPGP, the fingerprint of one of SSH.
func (s Signature) keyID() string {
	key := cmp.Or(s.TagBy, s.By)
	switch {
	case s.Kind != SignedOpenPGP:
		return key
	case len(key) == 40: // of a key of version 4, which nearly all are
		return key[24:]
	default:
		return key[:min(16, len(key))]
	}
}

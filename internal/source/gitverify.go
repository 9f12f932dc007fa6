package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// ReasonSignature is the reason of the fault of a commit or a tag that is not signed by one
// of the keys.
const ReasonSignature = "InvalidCommitSignature"

// GitVerify says what has to be signed, and by which OpenPGP keys. The zero value lets
// everything pass.
type GitVerify struct {
	Commit bool
	Tag    bool     // needs an annotated tag
	Keys   []string // public keys in ASCII armour
}

// The modes of Flux.
const (
	modeHead       = "HEAD"
	modeTag        = "Tag"
	modeTagAndHead = "TagAndHEAD"
)

// GitVerifyFrom reads a mode as Flux has it: HEAD, Tag or TagAndHEAD, and a Secret of which
// each value is a public key.
func GitVerifyFrom(mode string, data map[string][]byte) (GitVerify, error) {
	v := GitVerify{Commit: mode == modeHead || mode == modeTagAndHead || mode == "head", Tag: mode == modeTag || mode == modeTagAndHead}
	if !v.Commit && !v.Tag {
		return v, invalid(ReasonSignature, "%.40q is no mode of verification: write HEAD, Tag or TagAndHEAD", mode)
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if _, err := openpgp.ReadArmoredKeyRing(strings.NewReader(string(data[name]))); err != nil {
			return v, invalid(ReasonSignature, "the public key %.100q cannot be read: %w: it is what gpg --armor --export prints", name, err)
		}
		v.Keys = append(v.Keys, string(data[name]))
	}
	if len(v.Keys) == 0 {
		return v, invalid(ReasonSignature, "there is no public key to verify signatures with: add what gpg --armor --export prints")
	}
	return v, nil
}

// check verifies a commit and the tag that led to it, and returns the ID of the key that
// signed.
func (v GitVerify) check(store *filesystem.Storage, at gitCommit, commit *object.Commit) (signer string, err error) {
	if v.Commit {
		if signer, err = v.signed("the commit "+commit.Hash.String()[:12], commit.PGPSignature, commit.Verify); err != nil {
			return "", err
		}
	}
	if !v.Tag {
		return signer, nil
	}
	tag, err := object.GetTag(store, at.want)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return "", invalid(ReasonSignature, "the tag has to be signed, and only an annotated tag can be: make it with git tag -s")
	}
	if err != nil {
		return "", gitFault("reading the tag", err)
	}
	// The signature covers the name and the commit. A server could show another tag that was
	// signed once, under this name.
	if tag.Name != at.tag || tag.Target != at.commit {
		return "", invalid(ReasonSignature, "the tag %s leads to a signed tag %.100q of the commit %.12s, and not to one of this name and the commit %.12s", at.tag, tag.Name, tag.Target, at.commit)
	}
	return v.signed("the tag "+tag.Name, tag.PGPSignature, tag.Verify)
}

// signed finds the key that made a signature.
func (v GitVerify) signed(what, signature string, verify func(armor string) (*openpgp.Entity, error)) (string, error) {
	switch {
	case signature == "":
		return "", invalid(ReasonSignature, "%s is not signed", what)
	case strings.Contains(signature, "BEGIN SSH SIGNATURE"):
		return "", invalid(ReasonSignature, "%s is signed with a key of ssh, and signatures of OpenPGP alone are verified", what)
	}
	var failures []error
	for _, armor := range v.Keys {
		entity, err := verify(armor)
		if err == nil {
			return entity.PrimaryKey.KeyIdString(), nil
		}
		failures = append(failures, err)
	}
	return "", invalid(ReasonSignature, "%s is signed by none of the %d keys: %w", what, len(v.Keys), fmt.Errorf("verifying: %w", errors.Join(failures...)))
}

// Package registry keeps modules and providers that users publish: archives in a store,
// and beside them one index for each module and each provider, so that no request lists
// the store.
//
// An archive is checked before it is stored, and its bytes never change. It knows no
// HTTP and no rights: package protocol serves it. Start reading at Registry.
package registry

import (
	"io"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
)

// Archive is an open archive. Seek costs nothing, so that a range costs what it has.
type Archive struct {
	io.ReadSeekCloser
	Name     string // of the file
	Size     int64  // in bytes
	SHA256   string // in hex; empty if nothing has worked it out yet
	Modified time.Time
}

// ModuleVersion is what a registry knows about one version of a module.
type ModuleVersion struct {
	Version   address.Version
	File      string // the name of the archive
	SHA256    string // in hex; empty if another program published it
	Size      int64  // in bytes; zero if another program published it
	Published time.Time
	By        string
	Retracted *Retraction // nil: clients may use it
}

// ProviderVersion is what a registry knows about one version of a provider.
type ProviderVersion struct {
	Version   address.Version
	Protocols []string // of plug-ins, as 5.0
	Packages  map[address.Platform]Package
	Key       string // the ID of the key that signed it
	Published time.Time
	By        string
	Retracted *Retraction // nil: clients may use it
}

// Package is the archive of a provider for one platform.
type Package struct {
	File   string
	SHA256 string // in hex, from the signed list
	H1     string // of the unpacked package, with its scheme; empty if nothing has worked it out yet
	Size   int64  // in bytes
}

// Retraction withdraws a version: it is in no list, and is not served. Its bytes stay.
type Retraction struct {
	By, Reason string
	At         time.Time
}

// Key is a public key of OpenPGP, with which a namespace signs its providers.
type Key struct {
	ID    string // in hex, as clients show it
	Armor string // the key in ASCII armour
}

// Upload is content that a user publishes.
type Upload struct {
	By      string // the user
	Content io.Reader
}

// Reasons of faults.
const (
	UploadInvalid    = "UploadInvalid"    // the content is not what it has to be
	ModuleMissing    = "ModuleMissing"    // there is no such module
	ProviderMissing  = "ProviderMissing"  // there is no such provider
	VersionMissing   = "VersionMissing"   // there is no such version
	PlatformMissing  = "PlatformMissing"  // the version has no package for the platform
	VersionExists    = "VersionExists"    // other bytes are published under this version
	VersionRetracted = "VersionRetracted" // a user retracted the version
	SignatureInvalid = "SignatureInvalid" // no key of the namespace made the signature
	KeyInvalid       = "KeyInvalid"       // it is no public key
	KeyInUse         = "KeyInUse"         // published versions need the key
)

// Package registry keeps modules and providers that users publish: archives in a store,
// and beside them one index for each module and each provider, so that no request lists
// the store.
//
//	modules/NS/NAME/SYSTEM/NS-NAME-SYSTEM-VERSION.tar.gz   the archive of a module, or .zip
//	providers/NS/TYPE/terraform-provider-TYPE_VERSION_…    the files of a provider
//	providers/NS/signing-keys.json                         the public keys that sign them
//	index/modules/NS/NAME/SYSTEM.json                      what is known of the versions of a module
//	index/providers/NS/TYPE.json                           likewise
//	index/names/modules.json, …/providers.json             the namespaces
//	index/names/modules/NS.json, …/providers/NS.json       the names in one
//	waiting/providers/NS/TYPE/VERSION/…                    files until the version is published
//
// The keys of archives are those of boring-registry. A bucket of it has no indexes: each
// is made from one list at the first request, and is kept in memory if the bucket is
// read-only.
//
// An archive is checked before it is stored, and its bytes never change. The archive
// comes first and its index after it, so what an index names is there. The package knows
// no HTTP and no rights: package protocol serves it. Start reading at Registry.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Registry publishes modules and providers, and answers what there is.
type Registry struct {
	*common
	*modules
	*providers
	*keys
}

// common is what modules and providers have in common.
type common struct {
	store blob.Versions
	o     Options
	names *indexes[nameIndex]
	usage *usage

	stored cache.Map[string, nameIndex] // the names of a namespace that has archives, by its prefix

	parsing chan struct{} // configuration of uploads

	mu      sync.Mutex
	uploads map[string]int // that go on, by namespace
}

// Options bound a registry. A zero field means its default.
type Options struct {
	Scratch    string     // the directory for uploads that are being checked; that of the system
	MaxArchive int64      // of one archive, in bytes; 1 GiB
	MaxWaiting int64      // of all packages of a version that is not published, in bytes; 16 GiB
	Room       *room.Room // of the disk of Scratch

	// Quota bounds what a namespace publishes; nil if nothing does.
	Quota func(ctx context.Context, namespace string) (Quota, error)

	// Exists is nil if there is a namespace of this name to publish in, and Missing if not.
	// Without it every name is one.
	Exists func(ctx context.Context, namespace string) error

	// Record records what users change. It returns once that is recorded for good, and
	// records no ID twice; nil if nothing is recorded.
	Record func(context.Context, Deed) error

	Now func() time.Time // time.Now
	Log *slog.Logger
}

// New returns a registry that keeps everything in a store. Several processes may use one
// store.
func New(store blob.Versions, o Options) *Registry {
	o.Scratch = cmp.Or(o.Scratch, os.TempDir())
	o.MaxArchive = cmp.Or(o.MaxArchive, 1<<30)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 16<<30)
	if o.Room == nil {
		o.Room = room.Of(o.Scratch)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &common{store: store, o: o, names: newIndexes[nameIndex](store, o), uploads: map[string]int{}, parsing: make(chan struct{}, parsingAtOnce), stored: cache.Map[string, nameIndex]{
		Size: 10_000, TTL: listedFor, Now: o.Now,
		Weight: parsedWeight, Weigh: func(prefix string, n nameIndex) int { return len(prefix) + entryWeight*(1+n.entries()) },
	}}
	m, p := &modules{c, newIndexes[moduleIndex](store, o)}, &providers{c, newIndexes[providerIndex](store, o)}
	c.usage = &usage{m, p, o.Quota}
	return &Registry{c, m, p, &keys{c, p}}
}

// Archive is an open archive. Seek costs nothing, so that a range costs what it has.
type Archive struct {
	io.ReadSeekCloser
	Name     string // of the file
	Size     int64  // in bytes
	Modified time.Time
}

// OpenArchive opens what is published under a key. It does not ask whether it is
// retracted: who has a key got it from a version that was not.
func (c *common) OpenArchive(ctx context.Context, key string) (Archive, error) {
	if !strings.HasPrefix(key, modulesPrefix) && !strings.HasPrefix(key, providersPrefix) {
		return Archive{}, blob.Missing(key)
	}
	v, err := c.store.Open(ctx, key)
	if err != nil {
		return Archive{}, err
	}
	return Archive{ReadSeekCloser: v, Name: key[strings.LastIndex(key, "/")+1:], Size: v.Size, Modified: v.Modified}, nil
}

// Retraction withdraws a version: it is in no list for clients, and is not served. Its
// bytes stay, and so does its place: no other bytes get this version.
type Retraction struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// mostReason bounds the reason of a retraction.
const mostReason = 500

// retraction checks the reason of a user.
func (c *common) retraction(by, reason string) (*Retraction, error) {
	switch reason = strings.TrimSpace(reason); {
	case reason == "":
		return nil, fault.New(fault.Invalid, RetractionInvalid, errors.New("a retraction needs a reason: say why, and which version to use instead"))
	case len(reason) > mostReason:
		return nil, fault.New(fault.Invalid, RetractionInvalid, fmt.Errorf("the reason has %d bytes, and %d are allowed", len(reason), mostReason))
	case strings.ContainsFunc(reason, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return nil, fault.New(fault.Invalid, RetractionInvalid, errors.New("the reason has a control character: write it in one line"))
	}
	return &Retraction{By: by, Reason: reason, At: c.o.Now().UTC().Truncate(time.Second)}, nil
}

// Upload is content that a user publishes.
type Upload struct {
	By      string // the user
	Content io.Reader
	Size    int64   // of the content as the client says; 0 or less if it does not
	Origin  *Origin // of a version of a module that comes from a tag of git
}

// Reasons of faults.
const (
	UploadInvalid     = "UploadInvalid"     // the content is not what it has to be
	UploadMissing     = "UploadMissing"     // a file of a version was not uploaded
	ModuleMissing     = "ModuleMissing"     // there is no such module
	ProviderMissing   = "ProviderMissing"   // there is no such provider
	VersionMissing    = "VersionMissing"    // there is no such version
	PlatformMissing   = "PlatformMissing"   // the version has no package for the platform
	VersionExists     = "VersionExists"     // other bytes are published under this version
	VersionRetracted  = "VersionRetracted"  // a user retracted the version
	RetractionInvalid = "RetractionInvalid" // the reason of a retraction is missing or too long
	SignatureInvalid  = "SignatureInvalid"  // no key of the namespace made the signature
	KeyInvalid        = "KeyInvalid"        // it is no public key
	NamespaceMissing  = "NamespaceMissing"  // there is no such namespace to publish in
	WaitingMany       = "WaitingMany"       // as many files or versions of a namespace as may wait to be published do
	UploadsBusy       = "UploadsBusy"       // as many uploads as may go on at once do
	KeyInUse          = "KeyInUse"          // published versions need the key
)

func errVersion(what fmt.Stringer, v address.Version) error {
	return fault.New(fault.Missing, VersionMissing, fmt.Errorf("%s has no version %s", what, v))
}

func errRetracted(what fmt.Stringer, v address.Version, r *Retraction) error {
	return fault.New(fault.Missing, VersionRetracted, fmt.Errorf("version %s of %s was retracted: %s", v, what, r.Reason))
}

func errExists(what fmt.Stringer, v address.Version) error {
	return fault.New(fault.Conflict, VersionExists, fmt.Errorf("version %s of %s exists with other content, and published content never changes: publish a new version", v, what))
}

// errOther is errExists for a version of a module, and says where it came from.
func errOther(m address.Module, v address.Version, there ModuleVersion) error {
	from := ""
	switch {
	case there.Origin != nil:
		from = fmt.Sprintf(", from the tag %s of %s", there.Origin.Tag, there.Origin.Repository)
	case there.By != "":
		from = fmt.Sprintf(", which %s uploaded", there.By)
	}
	return fault.New(fault.Conflict, VersionExists, fmt.Errorf("version %s of %s exists with other content%s, and published content never changes: publish a new version", v, m, from))
}

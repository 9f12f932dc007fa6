// Package origin publishes modules from the tags of git repositories. A repository is
// registered with the name of its module; each of its tags that is a semantic version
// becomes a version of the module, once.
//
//	Repository   what is registered: an object of Kubernetes, or an entry of a file
//	candidates   pattern.go: which tags are versions, of which module, in which directory
//	decide       decide.go: which of them to take, and which contradict what is published
//	Poller       poll.go: lists the tags at an interval, and takes new ones, the newest first
//	State        state.go: what came of it, kept in the storage of the registry
//
// A version never changes. A tag that moves is told as a problem and changes nothing, and a
// tag that is deleted deletes nothing. A webhook makes the next check come at once, and no
// byte of it is read as a fact. Start reading at Repository.
package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/share"
	"github.com/terrier-iac/terrier/internal/source"
)

// The reasons of this package's faults and problems.
const (
	ReasonSettings = "RepositoryInvalid"    // what is registered cannot be
	ReasonMissing  = "RepositoryMissing"    // no repository of this name is registered
	ReasonMoved    = "TagMoved"             // a tag points to another commit than its version was made from
	ReasonTwoTags  = "TagsContradict"       // two tags of different commits mean one version
	ReasonOther    = "VersionHasOtherBytes" // other content was published under the version before
)

// Key names a repository that is registered.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Repository is a repository whose tags become versions.
type Repository struct {
	Key
	URL       string
	Module    string // NAME/SYSTEM in the namespace of the key; {name} and {system} are those of the tag
	Tags      string // the form of the names of tags; {version} if empty
	Directory string // of the module in the repository; the same placeholders; the root if empty

	Interval  time.Duration // between two checks; 10 minutes if zero
	Timeout   time.Duration // of one request to the git server; one minute if zero
	Suspended bool
	Mode      string // of the verification of signatures: Tag or TagAndHEAD; none if empty
	// Requested is a text of the user. Another one than at the last check has the
	// repository checked at once, and tags that were skipped are tried again.
	Requested string

	// Invalid is why the entry cannot be used; nil if it can.
	Invalid error
	// Access reads the credentials, at each check.
	Access func(context.Context) (Access, error)
	// Secret reads what its webhooks are signed with; nil without webhooks.
	Secret func(context.Context) (secret.Text, error)
	// Tell reports to the user of the repository; it may be nil.
	Tell func(problem bool, reason, message string)
}

// Access is what a git server asks for, and what proves its answers.
type Access struct {
	Auth       source.GitAuth
	KnownHosts []byte            // of the operator
	Keys       map[string][]byte // public OpenPGP keys
}

// The bounds of an interval, and the defaults.
const (
	shortest       = time.Minute
	usualInterval  = 10 * time.Minute
	usualTimeout   = time.Minute
	longestTimeout = 10 * time.Minute
)

func (r Repository) interval() time.Duration {
	if r.Interval <= 0 {
		return usualInterval
	}
	return max(r.Interval, shortest)
}

func (r Repository) timeout() time.Duration {
	if r.Timeout <= 0 {
		return usualTimeout
	}
	return min(r.Timeout, longestTimeout)
}

// settings is a digest of what decides which versions come of a repository.
func (r Repository) settings() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", r.URL, r.Module, r.Tags, r.Directory, r.Mode))
	return hex.EncodeToString(sum[:8])
}

// Source says which repositories are registered.
type Source interface {
	Repositories(ctx context.Context) ([]Repository, error)
}

// Counts counts what a poller does.
type Counts interface {
	Published(Key)
	Checked(k Key, s State)
	Known(k Key, s State) // what an earlier process found at its last check
	Removed(Key)          // it is no longer registered, or another replica checks it
}

// Options are what a Poller needs.
type Options struct {
	Registry *registry.Registry
	Store    blob.Versions // of the registry
	Source   Source
	Out      *outbound.Client
	Scratch  string // a directory of its own, which Run empties
	Room     *room.Room
	Counts   Counts
	// Alone: no other part of the program says which of several replicas is the one that
	// checks repositories, so the storage does.
	Alone bool
	Now   func() time.Time
	Log   *slog.Logger
}

// Poller checks repositories.
type Poller struct {
	o     Options
	store states
	lease lease
	poked chan struct{} // a webhook came to this process

	running running
	secrets secrets
}

// New returns a poller. Run has it check repositories; without it, it answers what is known
// of them, and takes webhooks.
func New(o Options) (*Poller, error) {
	if o.Registry == nil || o.Store == nil || o.Source == nil || o.Out == nil || o.Room == nil || o.Counts == nil || o.Now == nil || o.Log == nil {
		return nil, errors.New("making the poller of repositories: an option is missing")
	}
	return &Poller{
		o: o, store: states{o.Store}, lease: newLease(o.Store, o.Now), poked: make(chan struct{}, 1),
		running: running{all: map[Key]*work{}, places: share.New[Key](share.Bounds{All: workers, Most: ofNamespace})}, secrets: newSecrets(o.Now),
	}, nil
}

// find returns a repository that is registered.
func (p *Poller) find(ctx context.Context, k Key) (Repository, error) {
	all, err := p.o.Source.Repositories(ctx)
	if err != nil {
		return Repository{}, err
	}
	for _, r := range all {
		if r.Key == k {
			return r, nil
		}
	}
	return Repository{}, fault.New(fault.Missing, ReasonMissing, fmt.Errorf("no repository %s is registered", k))
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, ReasonSettings, fmt.Errorf(format, args...))
}

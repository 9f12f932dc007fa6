// Package gitstate keeps managed states in files of git repositories, for small estates: the
// controller commits and pushes them, and no run has a credential for the repository.
//
//	Load   the file at the tip of the branch ── decrypt ──▶ state
//	Save   state ── encrypt ──▶ one commit on top of the tip ── push ──▶ the branch
//
// A state is encrypted before anything is committed, always, and one that is found in clear
// is refused: every user who may push could have written it. Beside what is encrypted a
// document says who wrote it. One that Terrier did not write is Foreign.
//
// The package keeps nothing between calls but the newest documents, as ciphertext. A git
// server may be slow, or hang: passes ask it through Beside, and wait for it for a moment only.
// Start reading at States.
package gitstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ReasonNoAccess is the reason of a place whose Secret or GitRepository is not there.
const ReasonNoAccess = "StateAccessMissing"

// States keeps states in git. It satisfies kube.Elsewhere.
type States struct {
	Client     client.Reader // asks the API server: Secrets are not cached
	Cipher     kube.Cipher
	Out        *outbound.Client
	KnownHosts string // the file of --ssh-known-hosts; may be empty
	Scratch    string // where a commit is fetched to for the time of a call
	Now        func() time.Time

	// Hosts are the hosts that may be sent states and the credentials for them: HOST, HOST:PORT,
	// or * for all.
	Hosts []string
	// AsAccount refuses all states in git, since stacks are to be read with the rights of their
	// ServiceAccounts, and this package reads with those of the controller.
	AsAccount bool

	once    sync.Once
	tips    *cache.Map[string, source.GitTip]
	writing turns // by the URL of a repository: commits of one program do not race each other
}

var _ kube.Elsewhere = (*States)(nil)

// Most of the documents that are remembered, so that a state that did not change costs one
// request.
const tipBytes = 64 << 20

// Load reads a state. What is no state of this stack is an error with the reason
// StateUnreadable, as of a state in a Secret.
func (s *States) Load(ctx context.Context, ref kube.StateRef) (kube.Stored, error) {
	f, err := s.file(ctx, ref)
	if err != nil {
		return kube.Stored{}, err
	}
	return s.load(ctx, ref, f)
}

func (s *States) load(ctx context.Context, ref kube.StateRef, f *source.GitFile) (kube.Stored, error) {
	_, found, err := s.read(ctx, ref, f)
	return found, err
}

// Save stores a newer version of the state of a stack. It is a Conflict to replace a state
// that it does not continue, or one that Terrier did not write. Storing the same version
// again changes nothing.
func (s *States) Save(ctx context.Context, ref kube.StateRef, owner kube.Owner, state []byte) error {
	return s.found(ctx, ref, saving(ref, owner, state))
}

// Replace stores the state of a user over the one that the user saw.
func (s *States) Replace(ctx context.Context, ref kube.StateRef, r kube.Replacement) error {
	return s.found(ctx, ref, replacing(ref, r))
}

// Reform stores the state that is there once more, byte by byte the same, if an older key
// encrypted it or if Terrier did not write it. A user has accepted it then.
func (s *States) Reform(ctx context.Context, ref kube.StateRef) error {
	return s.found(ctx, ref, reforming(ref))
}

// found is change, in the repository that ref names now.
func (s *States) found(ctx context.Context, ref kube.StateRef, decide decision) error {
	f, err := s.file(ctx, ref)
	if err != nil {
		return err
	}
	return s.change(ctx, ref, f, decide)
}

// decision is what is stored over what was found; nil for nothing.
type decision func(kube.Stored, error) (*commit, error)

func saving(ref kube.StateRef, owner kube.Owner, state []byte) decision {
	return func(found kube.Stored, err error) (*commit, error) {
		switch {
		case fault.Reason(err, "") == kube.StateUnreadable:
			return nil, conflict(err)
		case err != nil:
			return nil, err
		case found.Digest == stack.Sum(state):
			return nil, nil
		case found.Foreign:
			return nil, conflict(fmt.Errorf("%s: another client wrote it", ref.InWords()))
		}
		if err := kube.Follows(found.State, state); err != nil {
			return nil, conflict(fmt.Errorf("storing the state in %s: %w", ref.InWords(), err))
		}
		return &commit{state: state, note: note{Stack: owner.Name, UID: owner.UID, Run: owner.Run}}, nil
	}
}

func replacing(ref kube.StateRef, r kube.Replacement) decision {
	return func(found kube.Stored, err error) (*commit, error) {
		if err != nil && fault.Reason(err, "") != kube.StateUnreadable {
			return nil, err
		}
		if found.Digest != r.Over {
			return nil, conflict(fmt.Errorf("%s changed in the meantime", ref.InWords()))
		}
		return &commit{state: r.State, note: note{Stack: r.Owner.Name, UID: r.Owner.UID, Person: r.Person}}, nil
	}
}

func reforming(ref kube.StateRef) decision {
	return func(found kube.Stored, err error) (*commit, error) {
		if err != nil || !found.Outdated(ref) {
			return nil, err
		}
		return &commit{state: found.State, note: note{Stack: found.Owner, UID: found.OwnerUID, Person: found.Person, Again: true}}, nil
	}
}

// commit is what a change comes to.
type commit struct {
	state []byte
	note  note
}

// change reads the file and stores what decide makes of it; nil for nothing. A writer that
// comes in between wins, unless it stored the same state.
func (s *States) change(ctx context.Context, ref kube.StateRef, f *source.GitFile, decide decision) error {
	done, err := s.writing.take(ctx, f.Git.URL)
	if err != nil {
		return s.unreached(ref, f, fmt.Errorf("waiting for other states that are stored in the repository: %w", err))
	}
	defer done()
	tip, found, err := s.read(ctx, ref, f)
	next, err := decide(found, err)
	if err != nil || next == nil {
		return err
	}
	c, err := s.seal(ctx, ref, *next)
	if err != nil {
		return err
	}
	written, err := f.Write(ctx, tip, c)
	switch {
	case err == nil:
		s.remember(ref, written)
		return nil
	case fault.Reason(err, "") != source.ReasonFileChanged:
		return s.unreached(ref, f, err)
	}
	if _, now, again := s.read(ctx, ref, f); again == nil && now.Digest == stack.Sum(next.state) {
		return nil
	}
	return conflict(fmt.Errorf("storing the state in %s: %w", ref.InWords(), err))
}

func conflict(err error) error { return fault.New(fault.Conflict, kube.StateConflict, err) }

// seal makes the commit: the encrypted state, and a message without a value of it.
func (s *States) seal(ctx context.Context, ref kube.StateRef, c commit) (source.GitChange, error) {
	facts, err := stack.ReadState(c.state)
	if err != nil {
		return source.GitChange{}, fmt.Errorf("storing the state in %s: it is no state: %w", ref.InWords(), err)
	}
	document, err := s.Cipher.Encrypt(ctx, ref.KeyPlace(), c.state)
	if err != nil {
		return source.GitChange{}, fmt.Errorf("encrypting the state of %s: %w", ref.InWords(), err)
	}
	if document, err = c.note.on(document); err != nil {
		return source.GitChange{}, err
	}
	if !encryption.Encrypted(document) {
		return source.GitChange{}, fault.New(fault.Broken, encryption.ReasonKey, fmt.Errorf("%s: the state is not encrypted, and nothing is committed", ref.InWords()))
	}
	return source.GitChange{Content: document, Message: c.note.message(ref, facts), Author: "Terrier", Email: "terrier@terrier.dev", At: s.Now()}, nil
}

// read reads the file, and the state in it.
func (s *States) read(ctx context.Context, ref kube.StateRef, f *source.GitFile) (source.GitTip, kube.Stored, error) {
	known, _ := s.remembered().Get(ref.String())
	tip, err := f.Read(ctx, known)
	if err != nil {
		return tip, kube.Stored{}, s.unreached(ref, f, err)
	}
	s.remember(ref, tip)
	found, err := s.opened(ctx, ref, tip)
	return tip, found, err
}

// opened is the state in a document.
func (s *States) opened(ctx context.Context, ref kube.StateRef, tip source.GitTip) (kube.Stored, error) {
	if tip.Blob == "" {
		return kube.Stored{}, nil
	}
	found := kube.Stored{Digest: "unreadable:" + stack.Sum(tip.Content), Packed: len(tip.Content), Encrypted: true}
	unreadable := func(err error) error {
		return fault.New(fault.Broken, kube.StateUnreadable, fmt.Errorf("reading %s: %w", ref.InWords(), err))
	}
	if !encryption.Encrypted(tip.Content) {
		found.Encrypted = false
		return found, unreadable(errors.New("it is not encrypted with a key of this platform. Terrier reads no other file of a repository, since every user who may push can write one"))
	}
	n := noteOf(tip.Content)
	found.Owner, found.OwnerUID, found.Person, found.Foreign = n.Stack, n.UID, n.Person, n == note{}
	state, newest, err := s.Cipher.Decrypt(ctx, ref.KeyPlace(), tip.Content)
	if fault.Reason(err, "") == encryption.ReasonKey {
		return found, unreadable(err)
	}
	if err != nil {
		return kube.Stored{}, err
	}
	found.State, found.Newest, found.Digest = state, newest, stack.Sum(state)
	return found, nil
}

func (s *States) remembered() *cache.Map[string, source.GitTip] {
	s.once.Do(func() {
		s.tips = &cache.Map[string, source.GitTip]{Size: 1000, Weight: tipBytes, Weigh: func(key string, t source.GitTip) int { return len(key) + len(t.Content) }}
	})
	return s.tips
}

func (s *States) remember(ref kube.StateRef, tip source.GitTip) {
	s.remembered().Put(ref.String(), tip)
}

// file finds the repository of a state and the credentials for it.
func (s *States) file(ctx context.Context, ref kube.StateRef) (*source.GitFile, error) {
	at := *ref.Git
	if s.AsAccount {
		return nil, noAccess(ref, errors.New("this controller reads what stacks name with the rights of their ServiceAccounts (--read-as-service-account), and keeps no states in git then"))
	}
	repository, secret := at.Repository, at.Secret
	if at.Named() {
		var o sourcev1.GitRepository
		if err := s.get(ctx, &o, "GitRepository", ref, at.Repository); err != nil {
			return nil, err
		}
		repository = o.Spec.URL
		if o.Spec.SecretRef != nil {
			secret = cmp.Or(secret, o.Spec.SecretRef.Name)
		}
	}
	if err := s.allowed(repository); err != nil {
		return nil, noAccess(ref, err)
	}
	var data map[string][]byte
	if secret != "" {
		var err error
		if data, _, err = kube.ReadSecret(ctx, s.Client, types.NamespacedName{Namespace: ref.Namespace, Name: secret}); err != nil {
			return nil, noAccess(ref, err)
		}
	}
	hosts, err := source.ReadKnownHosts(s.KnownHosts)
	if err != nil {
		return nil, err
	}
	return &source.GitFile{
		Git:    &source.Git{URL: repository, Auth: source.GitAuthFrom(data), KnownHosts: hosts, Out: s.Out, Scratch: s.Scratch},
		Branch: at.Branch, Path: at.Path,
	}, nil
}

// allowed refuses a repository on a host that the operator did not list, before a Secret is
// read for it.
func (s *States) allowed(repository string) error {
	host, err := location.GitHost(repository)
	if err != nil {
		return err
	}
	if slices.Contains(s.Hosts, "*") || slices.Contains(s.Hosts, host) || slices.Contains(s.Hosts, (&url.URL{Host: host}).Hostname()) {
		return nil
	}
	return fmt.Errorf("this platform keeps no states on the host %s: the operator allows it with --state-git-host %s", host, host)
}

func (s *States) get(ctx context.Context, o client.Object, kind string, ref kube.StateRef, name string) error {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: name}
	err := s.Client.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return noAccess(ref, fault.New(fault.Missing, "", fmt.Errorf("the %s %s does not exist", kind, key)))
	}
	if err != nil {
		return noAccess(ref, fmt.Errorf("reading the %s %s: %w", kind, key, err))
	}
	return nil
}

// noAccess says that the object is not there, or cannot be read, by which a state is reached.
func noAccess(ref kube.StateRef, err error) error {
	reason := string(stack.StateFailed)
	if fault.Of(err) == fault.Missing {
		reason = ReasonNoAccess
	}
	return fault.New(fault.Later, reason, fmt.Errorf("the state is in %s: %w. Correct repository or secretRef in %s", ref.InWords(), err, settingsOf))
}

const settingsOf = "the settings of the state in git (the annotation terrier.dev/backend-settings, or spec.backend of alustan.io)"

// unreached says why a repository was not read or written. It is never Denied: a denied write
// in a namespace that goes away is no failure, and this one is.
func (s *States) unreached(ref kube.StateRef, f *source.GitFile, err error) error {
	way := "Terrier tries again by itself"
	switch {
	case fault.Reason(err, "") == source.ReasonAuth:
		way = "Correct the Secret that secretRef names in " + settingsOf + ". The credentials have to be allowed to push"
	case fault.Reason(err, "") == source.ReasonPush && fault.Of(err) == fault.Denied:
		way = "Let these credentials push to the branch " + f.Branch + ", or name another branch"
	case fault.Of(err) == fault.Missing:
		way = "Create the repository, or correct repository in " + settingsOf + ". The credentials have to be allowed to push"
	case fault.Of(err) == fault.Invalid:
		way = "Correct " + settingsOf
	}
	text := strings.TrimSuffix(err.Error(), ".")
	return fault.New(fault.Later, string(stack.StateFailed), fmt.Errorf("the state is in %s: %.2000s. %s", ref.InWords(), text, way))
}

// Package record says what is kept in a blob store: which kinds of records there
// are, the key of each, who writes it, and when it goes. No other package builds a
// key. It stores nothing itself, and does not decide when a record goes: the
// owner of a kind does. Start at Kinds.
package record

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Kind is one kind of record.
type Kind struct {
	Path  string // of its keys; each <word> stands for one part
	Holds string
	Owner string // the package that writes it and removes it
	Until string // when it goes
}

const withStack = "the stack is gone"

// All kinds. The functions that make their keys are in keys.go.
var (
	runFile       = Kind{"stacks/<uid>/runs/<run>/<file>", "report.json, log.txt and events.jsonl of a run; of a check that found nothing, under the name check, and without events", "controller", "20 newer runs have ended; a check that found nothing replaces the one before"}
	planFile      = Kind{"stacks/<uid>/plans/<digest>/<file>", "plan.bin, plan.json, plan.txt, lock.hcl and uses.json of a plan; plan-raw.json where webhooks may see it; verdict.json if policies judged it", "controller", "the plan is neither pending, applied last, nor the preview; of the plans in applied.json, plan.json, uses.json and verdict.json stay"}
	applied       = Kind{"stacks/<uid>/applied.json", "the plans that were applied last: at most 5, and fewer if their documents have more than 32 MiB", "controller", withStack}
	snapshot      = Kind{"stacks/<uid>/snapshots/<hex>", "the job that a destroy is made from", "controller", "a later apply succeeded"}
	rescued       = Kind{"stacks/<uid>/rescued/<run>.tfstate", "a state that a backend refused", "controller", withStack}
	state         = Kind{"stacks/<uid>/state.json", "a copy of the newest state, for a namespace that is deleted with its Secrets", "controller", withStack}
	outputs       = Kind{"stacks/<uid>/outputs.json", "the outputs of the newest state", "controller", withStack}
	stateIndex    = Kind{"stacks/<uid>/states/index.json", "the list of the versions of the state", "controller", withStack}
	stateVersion  = Kind{"stacks/<uid>/states/<version>", "a version of the state", "controller", "30 versions, or 256 MiB of them, are newer"}
	decisions     = Kind{"stacks/<uid>/decisions.json", "the last 50 decisions, and the rule of each", "controller", withStack}
	secrets       = Kind{"stacks/<uid>/secrets", "keyed hashes of the values from Secrets that runs were given, by which a view of a state hides them", "controller", withStack}
	secretsBeside = Kind{"stacks/<uid>/secrets-since", "the same as secrets, while the key that secrets is sealed with is lost", "controller", "that key is known again, and a run has begun"}
	lasting       = Kind{"stacks/<uid>/lasting", "what of the status must outlast it: untracked resources, what was created, the snapshot", "controller", withStack}
	audited       = Kind{"stacks/<uid>/told", "the requests of users that are in the audit log", "controller", withStack}
	approvers     = Kind{"stacks/<uid>/approvers.json", "when the approvals of a plan that a policy holds were seen first; which changes of the object the last apply had", "controller", withStack}
	checked       = Kind{"stacks/<uid>/checked", "the time of the last drift check, and the memory that runs took", "controller", withStack}
	uses          = Kind{"stacks/<uid>/uses.json", "the modules and providers that the stack uses, with their versions, and since when", "controller", withStack}
	handedOut     = Kind{"stacks/<uid>/vault", "the session of a run at OpenBao or Vault, with which its credentials are renewed and ended", "controller", "the run has ended, and so has the session"}
	loggedIn      = Kind{"stacks/<uid>/vault-login", "the session of a run that is signed in to OpenBao or Vault by its identity", "controller", "the run has ended, and so has the session"}
	secretLeases  = Kind{"externalsecrets/<uid>/vault", "the sessions at OpenBao or Vault by which the credentials in the Secret of an ExternalSecret, and those that it had before, are renewed and revoked", "controller", "the object is gone or names no such credentials, and those that it had have ended"}
	retained      = Kind{"retained/<uid>/<file>", "record.json and state.json of a deleted stack: its retained resources, and its last state; forgotten.json: the resources that its runs forgot and did not destroy, and the states that a user gave up, also of a stack that exists", "controller", "30 days have passed since the stack was deleted, or a user has forgotten it"}
	goneRun       = Kind{"gone/<stack>/<uid>/<file>", "report.json and log.txt of the last run of a deleted stack, by a digest of its kind, namespace and name", "controller", "30 days have passed since the stack was deleted, or a user has forgotten its retained resources"}
	tree          = Kind{"trees/<digest>", "the archive of a source that a snapshot needs", "controller", "no snapshot needs it"}
	sweptTree     = Kind{"swept/<digest>", "an archive that was removed from trees, where several controllers share stacks", "controller", "it is certain that no snapshot needs it, or it is put back"}
	outgrown      = Kind{"overflow/<place>/<digest>", "a state that is larger than a Secret", "kube", "the Secret points to another version"}
	outboxMessage = Kind{"notices/outbox/<id>", "a message that is not delivered", "notify", "it is delivered or dropped"}
	deliveries    = Kind{"notices/history/<namespace>", "the newest 200 deliveries of a namespace", "notify", "the newest of them is 30 days old"}
	figures       = Kind{"figures/<period>/<start>", "counts and durations of runs by kind and namespace, of one hour, six hours or a day", "app", "the period (a day, a week or a month) is over"}
	marker        = Kind{"installation.json", "the UID of the cluster and the Lease of the controller whose records these are", "app", "never"}
	auditSegment  = Kind{"audit/<segment>", "a part of the audit log, of a controller with --records", "app", "never"}
	witness       = Kind{"keys/<id>", "the name of a key from a Secret that encrypts records, encrypted with this key: a start notices if the key is lost", "app", "never"}
	resealing     = Kind{"resealing.json", "how far records are encrypted again with a newer key", "app", "never"}
	signOut       = Kind{"sessions/ended/<id>", "the end of a session before its time", "app", "the session would have expired"}
	identityKey   = Kind{"identity/keys/<id>", "a key that signs the tokens of runs, with its times", "app", "the next key has signed for two days"}
	registryToken = Kind{"registry/tokens/<id>", "a token for the registry: whose it is, what it may do, its end, and a digest of its secret", "access", "a week has passed since it expired"}
)

// Kinds are all kinds of records, those of stacks first.
func Kinds() []Kind {
	return []Kind{
		runFile, planFile, applied, snapshot, rescued, state, outputs, stateIndex, stateVersion, decisions, secrets, secretsBeside, lasting, audited, approvers, checked, uses, handedOut, loggedIn,
		secretLeases, retained, goneRun, tree, sweptTree, outgrown, outboxMessage, deliveries, figures, signOut, registryToken, identityKey, auditSegment, marker, witness, resealing,
	}
}

// key fills in the parts of a path, or its first ones: then it is what the keys
// of all such records begin with.
func (k Kind) key(parts ...string) string {
	var b strings.Builder
	rest := k.Path
	for {
		before, after, more := strings.Cut(rest, "<")
		b.WriteString(before)
		if !more || len(parts) == 0 {
			return b.String()
		}
		b.WriteString(parts[0])
		_, rest, _ = strings.Cut(after, ">")
		parts = parts[1:]
	}
}

// Known reports whether a key is that of a record, and not of an object that another
// program put beside them.
func Known(key string) bool {
	for _, k := range Kinds() {
		if begin := k.key(); key == k.Path || begin != k.Path && strings.HasPrefix(key, begin) {
			return true
		}
	}
	return false
}

// Reader is as much of a blob store as reading takes.
type Reader interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
}

// Writer is as much of a blob store as writing takes.
type Writer interface {
	Put(ctx context.Context, key string, r io.Reader) error
}

// MaxBytes bounds one record that is read into memory.
const MaxBytes = 256 << 20

// Read returns a record as it is. One that is not there is Missing, as the store
// says.
func Read(ctx context.Context, from Reader, key string) ([]byte, error) {
	r, err := from.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, MaxBytes))
}

// Write keeps b as it is.
func Write(ctx context.Context, to Writer, key string, b []byte) error {
	return to.Put(ctx, key, bytes.NewReader(b))
}

// Of is one record that holds a T as JSON.
type Of[T any] struct {
	Key   string
	parse func([]byte) (T, error) // nil: it is JSON
}

// At is the record of a key that a function here made, with a type that its
// owner has.
func At[T any](key string) Of[T] { return Of[T]{Key: key} }

// Decode reads what the record holds.
func (r Of[T]) Decode(b []byte) (T, error) {
	if r.parse != nil {
		return r.parse(b)
	}
	var v T
	err := json.Unmarshal(b, &v)
	return v, err
}

// Read reads the record. One that is not there is Missing, as the store says.
func (r Of[T]) Read(ctx context.Context, from Reader) (T, error) {
	b, err := Read(ctx, from, r.Key)
	if err != nil {
		var none T
		return none, err
	}
	v, err := r.Decode(b)
	if err != nil {
		return v, fmt.Errorf("reading %s: %w", r.Key, err)
	}
	return v, nil
}

// Write keeps v in place of what was there.
func (r Of[T]) Write(ctx context.Context, to Writer, v T) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(ctx, to, r.Key, b)
}

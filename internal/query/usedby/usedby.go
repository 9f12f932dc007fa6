// Package usedby answers which stacks use a module or a provider, in which version, and
// since when. It keeps an index of all stacks in memory, filled from their records, so that
// an answer about thousands of stacks reads nothing.
//
// Each controller has the whole index: the status of a stack has the digest of its record,
// so that a change of it is seen wherever it was made. Start reading at Index.
package usedby

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
)

// Bounds of an answer.
const (
	pageUses    = 100
	pageUsesMax = 1000
)

// Question chooses uses of one module or of one provider.
type Question struct {
	Module   string // an address as usage.ParseAsked reads it
	Provider string // namespace/type of any registry, or host/namespace/type; if Module is empty
	Versions string // a version constraint, or a git ref; all if empty
	Exact    string // a version; all if empty

	Namespace string // all if empty
	Offset    int
	Limit     int // 100 if 0, 1000 at most
}

// Use is one version of a module or a provider that a stack uses.
type Use struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind,omitempty"` // of the stack, as query.Key has it

	Address    string    `json:"address"` // of the module, or the source of the provider
	Directory  string    `json:"directory,omitempty"`
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Constraint string    `json:"constraint,omitempty"`
	Calls      []string  `json:"calls,omitempty"` // of the module in the stack: module.network
	Since      time.Time `json:"since,omitzero"`

	key string // of usage.Location, of a module
}

// Key names the stack.
func (u Use) Key() query.Key { return query.Key{Namespace: u.Namespace, Name: u.Name, Kind: u.Kind} }

// VersionCount is how many stacks use one version.
type VersionCount struct {
	Version string `json:"version"`
	Stacks  int    `json:"stacks"`
}

// Answer is the uses that a question chooses, by stack.
type Answer struct {
	Items    []Use          `json:"items"`
	Total    int            `json:"total"`    // uses that the question chooses
	Stacks   int            `json:"stacks"`   // that have them
	Versions []VersionCount `json:"versions"` // of all that the question chooses but for the version; the newest first

	// The answer is complete only if both are 0. They count stacks in the scope of the caller.
	Unread  int `json:"unread"`  // stacks whose records are still to be read
	Unknown int `json:"unknown"` // stacks of which no run has found out what they use
	// UnknownStacks are the first of the unknown ones.
	UnknownStacks []query.Key `json:"unknownStacks,omitempty"`
}

// namedUnknown is how many unknown stacks an answer names.
const namedUnknown = 10

// Records reads what a stack uses. One that is not there is Missing.
type Records interface {
	Uses(ctx context.Context, id query.StackID) (usage.Record, error)
}

// Index knows what all stacks use.
type Index struct {
	records Records
	log     *slog.Logger

	mu        sync.RWMutex
	synced    bool
	stacks    map[query.Key]*entry
	modules   map[string]map[query.Key]bool // by usage.Location.Key
	names     map[string]map[string]bool    // keys of modules, by namespace/name/system
	providers map[string]map[query.Key]bool // by source
	sources   map[string]map[string]bool    // sources, by namespace/type

	due  map[query.Key]bool // records to be read
	wake chan struct{}
}

// entry is what is known of one stack.
type entry struct {
	uid    string
	digest string // of the record, as the status has it; empty if it has none
	read   bool   // the record of that digest was read, or there is none

	modules, providers []Use
}

// New returns an Index that knows of no stack yet.
func New(records Records, log *slog.Logger) *Index {
	return &Index{records: records, log: log, stacks: map[query.Key]*entry{}, modules: map[string]map[query.Key]bool{}, names: map[string]map[string]bool{},
		providers: map[string]map[query.Key]bool{}, sources: map[string]map[string]bool{},
		due: map[query.Key]bool{}, wake: make(chan struct{}, 1)}
}

// Note takes in a stack that is there or changed. digest is stack.Status.Uses.
func (x *Index) Note(key query.Key, uid, digest string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.stacks[key]
	if e != nil && e.uid == uid && e.digest == digest {
		return
	}
	if e == nil || e.uid != uid {
		x.take(key, e)
		e = &entry{uid: uid}
		x.stacks[key] = e
	}
	// What an earlier record said stays until the next one was read.
	e.digest, e.read = digest, digest == ""
	if e.read {
		delete(x.due, key)
		return
	}
	x.due[key] = true
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Drop takes out a stack that is gone.
func (x *Index) Drop(key query.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.take(key, x.stacks[key])
	delete(x.stacks, key)
	delete(x.due, key)
}

// Synced says that all stacks that there are were noted.
func (x *Index) Synced() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.synced = true
}

// How records are read.
const (
	readers    = 8
	retryAfter = 30 * time.Second // of records that could not be read
)

// Run reads the records of the stacks that were noted, until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	for {
		failed := x.readDue(ctx)
		again := (<-chan time.Time)(nil)
		if failed {
			again = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-x.wake:
		case <-again:
		}
	}
}

// readDue reads all records that are due, and reports whether one could not be read.
func (x *Index) readDue(ctx context.Context) (failed bool) {
	x.mu.Lock()
	work := make(chan query.StackID, len(x.due))
	for key := range x.due {
		work <- query.StackID{Key: key, UID: x.stacks[key].uid}
	}
	x.mu.Unlock()
	close(work)
	var pool sync.WaitGroup
	var mu sync.Mutex
	var first error
	unread := 0
	for range min(readers, len(work)) {
		pool.Go(func() {
			for id := range work {
				err := x.readOne(ctx, id)
				if err == nil || ctx.Err() != nil {
					continue
				}
				mu.Lock()
				if unread++; first == nil {
					first = fmt.Errorf("reading those of %s: %w", id.Key, err)
				}
				mu.Unlock()
			}
		})
	}
	pool.Wait()
	if unread > 0 {
		x.log.Warn("modules and providers of stacks not read, which is tried again", "stacks", unread, "err", first)
	}
	return unread > 0
}

func (x *Index) readOne(ctx context.Context, id query.StackID) error {
	x.mu.RLock()
	e := x.stacks[id.Key]
	wanted := ""
	if e != nil && e.uid == id.UID {
		wanted = e.digest
	}
	x.mu.RUnlock()
	if wanted == "" {
		return nil // it is gone, or is another one
	}
	r, err := x.records.Uses(ctx, id)
	missing := fault.Of(err) == fault.Missing
	if err != nil && !missing {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	e = x.stacks[id.Key]
	if e == nil || e.uid != id.UID {
		return nil
	}
	x.take(id.Key, e)
	if missing {
		e.digest = "" // the next init finds out
	} else {
		x.put(id.Key, e, r.Usage)
	}
	if e.digest == wanted || missing { // else the status has changed meanwhile, and it is due again
		e.read = true
		delete(x.due, id.Key)
	}
	return nil
}

// put takes in what a stack uses.
func (x *Index) put(key query.Key, e *entry, u usage.Usage) {
	of := Use{Namespace: key.Namespace, Name: key.Name, Kind: key.Kind}
	for _, m := range u.Modules {
		at := m.Key()
		if at == "" {
			continue // a local module, or one that is not installed
		}
		add := of
		add.key = word(at)
		add.Address, add.Directory, add.Version, add.Commit = word(m.Address), word(m.Directory), word(m.Version), word(m.Commit)
		add.Constraint, add.Since = word(m.Constraint), m.Since
		i := slices.IndexFunc(e.modules, func(o Use) bool {
			return o.Address == add.Address && o.Directory == add.Directory && o.Version == add.Version && o.Commit == add.Commit && o.Constraint == add.Constraint
		})
		if i < 0 {
			i = len(e.modules)
			e.modules = append(e.modules, add)
		}
		e.modules[i].Calls = append(e.modules[i].Calls, word(m.Path))
		if m.Since.Before(e.modules[i].Since) {
			e.modules[i].Since = m.Since
		}
		mark(x.modules, add.key, key)
		if name := m.Location.Name(); name != "" {
			mark(x.names, word(name), add.key)
		}
	}
	for _, p := range u.Providers {
		if p.Version == "" {
			continue // it is built into the engine
		}
		add := of
		add.Address, add.Version, add.Constraint, add.Since = word(p.Source), word(p.Version), word(p.Constraint), p.Since
		e.providers = append(e.providers, add)
		mark(x.providers, add.Address, key)
		mark(x.sources, word(withoutHost(p.Source)), add.Address)
	}
}

// take takes out what a stack used.
func (x *Index) take(key query.Key, e *entry) {
	if e == nil {
		return
	}
	for _, m := range e.modules {
		unmark(x.modules, m.key, key)
	}
	for _, p := range e.providers {
		unmark(x.providers, p.Address, key)
	}
	e.modules, e.providers = nil, nil
}

func mark[K comparable](in map[string]map[K]bool, at string, what K) {
	if in[at] == nil {
		in[at] = map[K]bool{}
	}
	in[at][what] = true
}

func unmark(in map[string]map[query.Key]bool, at string, key query.Key) {
	delete(in[at], key)
	if len(in[at]) == 0 {
		delete(in, at)
	}
}

// word is the one copy of a text that thousands of stacks have in common.
func word(s string) string { return unique.Make(s).Value() }

func withoutHost(source string) string {
	_, rest, _ := strings.Cut(source, "/")
	return rest
}

package tenants

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"sync"
	"time"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// memory is kept for one Tenant between passes. All of it can be lost. Fields above
// mu belong to the pass, of which there is one at a time.
type memory struct {
	messagesSince time.Time         // when messages first differed from the status that was written last; zero if they did not
	applying      bool              // objects were written, and the tenant was not ready since
	missed        time.Time         // when its row was first found missing
	wrote         *tenantsv1.Tenant // as Terrier wrote it last, while it is not settled

	outages outages[about] // of the API server, by object

	sized    string           // the version of the Tenant whose size is known
	size     int              // of that without its status, in bytes
	most     int              // that the API server is known to refuse no Tenant for; zero if it refused none
	verdicts []tenant.Verdict // of the last pass, if the status has no room for all

	mu     sync.Mutex
	notes  map[tenant.Ref]note
	digest string // of the row that was last read
	values tenant.Row
}

// note is kept for one object.
type note struct {
	desired string         // digest of the desired object when it was last written
	live    string         // digest of the object after that, without its status
	version string         // its resourceVersion when it was last read
	seen    string         // digest of the object then, without its status
	object  map[string]any // the object then; only kept for a readyWhen

	failure  *tenant.Failure // of the last attempt
	tried    string          // identifies the attempt; another one is due if this changes
	attempts int
	denied   int // failed reads in a row
}

// debounce is how much longer to wait with a status of which only messages differ;
// zero for one that is to be written now. The time counts from the first difference,
// also if the messages go back meanwhile: those of a stack that fails, plans and fails
// again would never last. What they say at its end is written then.
func (m *memory) debounce(now time.Time, what difference) time.Duration {
	switch {
	case what == another || what == none && m.messagesSince.IsZero():
		return 0
	case m.messagesSince.IsZero():
		m.messagesSince = now
	}
	later := max(0, m.messagesSince.Add(statusDebounce).Sub(now))
	if later == 0 && what == none {
		m.messagesSince = time.Time{} // they went back, and lasted
	}
	return later
}

func (m *memory) get(r tenant.Ref) note {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notes[r]
}

func (m *memory) put(r tenant.Ref, n note) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[r] = n
}

// row returns the row with this digest, if it is the one that was read last.
func (m *memory) row(digest string) (tenant.Row, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values, digest != "" && digest == m.digest
}

func (m *memory) keepRow(digest string, row tenant.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.digest, m.values = digest, row
}

// only drops the notes of all other objects.
func (m *memory) only(refs map[tenant.Ref]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.notes, func(r tenant.Ref, _ note) bool { return !refs[r] })
	m.outages.only(func(a about) bool { return refs[a.Ref] || a == rowOfTenant || a == kindsOfCluster })
}

// Pauses after a failed attempt: it may succeed later although no watched object
// has changed.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// trial identifies an attempt by its inputs: the desired object, the live one and
// the Tenant. If any of them changes, the next attempt does not wait.
func (p *pass) trial(want string, n note) string { return want + n.seen + p.said }

// firstDenied is the first pause after a refused read: mostly a user has to change
// a role first.
const firstDenied = 30 * time.Second

// pause is how long to wait after a failed attempt, by the attempts before it.
func pause(first time.Duration, attempts int) time.Duration {
	return min(first<<min(attempts, 10), lastPause)
}

// fail notes a failed attempt.
func (n *note) fail(f tenant.Failure, tried string, now time.Time) {
	if n.tried != tried {
		n.attempts = 0
	}
	f.RetryAt = now.Add(pause(firstPause, n.attempts))
	n.failure, n.tried, n.attempts = &f, tried, n.attempts+1
}

// digest identifies a value that JSON can hold.
func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // every value came from JSON
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// wantedDigest identifies a desired object, and how it is to be written.
func (p *pass) wantedDigest(o tenant.Object) string {
	return digest([]any{o.Rendered, o.Creation, o.Deletion, o.Conflict, o.Patch, o.IgnoreFields, p.o.Protected})
}

// wantedAt is the wantedDigest of the object that is wanted at a place, empty if none is.
func (p *pass) wantedAt(ref tenant.Ref) string {
	for i := range p.o.Objects {
		if tenant.RefOf(p.o.Objects[i].Rendered) == ref {
			return p.wantedDigest(p.o.Objects[i])
		}
	}
	return ""
}

// withoutStatus identifies an object without its status: a change of the status
// alone is no reason to write.
func withoutStatus(object map[string]any) string {
	if object == nil {
		return ""
	}
	rest := maps.Clone(object)
	delete(rest, "status")
	if meta, ok := rest["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "resourceVersion")
		delete(meta, "managedFields")
		rest["metadata"] = meta
	}
	return digest(rest)
}

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

// memory is what is remembered of one Tenant's objects. All of it can be lost.
type memory struct {
	words time.Time // since when it has others than its status; zero if it has the same. Of whoever looks at the Tenant, which is one at a time

	applying bool // objects were written, and the tenant was not ready since; of whoever looks, too

	missed time.Time // when its row was first not there, as it should be; of whoever looks, too

	// The Tenant as we last wrote it, while it is on its way; of the same one.
	wrote *tenantsv1.Tenant

	mu     sync.Mutex
	notes  map[tenant.Ref]note
	digest string // of the row that was last read
	values tenant.Row
}

// note is what is remembered of one object.
type note struct {
	desired string         // what was wanted when it was last written or found to be right
	live    string         // what it was then, apart from its status
	version string         // its resourceVersion when it was last looked at
	seen    string         // what it was then, apart from its status
	object  map[string]any // then; only kept for a readyWhen

	failure  *tenant.Failure // of the last attempt
	tried    string          // what was tried, and on what; another attempt is due if that is something else
	attempts int
	blind    int // how often in a row it could not be looked at
}

// unspoken is how much longer to wait with a status of which only words are new;
// zero for one that is to be written now.
func (m *memory) unspoken(now time.Time, onlyWords bool) time.Duration {
	switch {
	case !onlyWords:
		m.words = time.Time{}
		return 0
	case m.words.IsZero():
		m.words = now
	}
	return max(0, m.words.Add(wordsLast).Sub(now))
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

// row returns the row with this digest, if it is the one that was last read.
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

// only drops the notes of objects that are neither wanted nor held.
func (m *memory) only(refs map[tenant.Ref]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.notes, func(r tenant.Ref, _ note) bool { return !refs[r] })
}

// Pauses after an attempt that failed: the server may have changed its mind by
// then, although nothing that is watched says so.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// trial is what an attempt is made of: what is wanted, of which object, and what
// the Tenant says. If any of it is something else, there is nothing to wait for.
func (p *pass) trial(want string, n note) string { return want + n.seen + p.said }

// firstSight is the first pause after a look that was refused: whoever may not
// look at something mostly waits for a person.
const firstSight = 30 * time.Second

// pause is how long to wait after an attempt that failed, as so many before it.
func pause(first time.Duration, attempts int) time.Duration {
	return min(first<<min(attempts, 10), lastPause)
}

// fail writes an attempt down that did not succeed.
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
	if err != nil { // no value of ours is such: they all came from JSON
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// wantedDigest identifies an object as it should be, and how it is to be written.
func wantedDigest(o tenant.Object) string {
	return digest([]any{o.Rendered, o.Creation, o.Deletion, o.Conflict, o.Patch, o.IgnoreFields})
}

// withoutStatus identifies what people and controllers want of an object, not
// what they say of it: a status alone is no reason to write.
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

package policies

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
)

// PerHour is how many resources the stacks of a tenant may destroy in an hour.
type PerHour struct {
	Policy, Tenant string
	Most           int
}

// Destroyed is how many resources one run destroys.
type Destroyed struct {
	Stack     string    `json:"stack"` // its UID
	Run       string    `json:"run"`
	Resources int       `json:"resources"`
	At        time.Time `json:"at"` // when it ended, or when it began if it has not ended
	Ended     bool      `json:"ended,omitempty"`
}

// until is the time from which on the destroys of a run do not count any more: an hour after its
// end. A run that goes on does not end before now.
func (d Destroyed) until(now time.Time) time.Time {
	if !d.Ended {
		return now.Add(time.Hour)
	}
	return d.At.Add(time.Hour)
}

// Beginning is a run that is to begin, and that destroys resources.
type Beginning struct {
	Entry  audit.Entry `json:"entry"` // says so in the audit log
	Limits []PerHour   `json:"limits"`
}

// Ledger knows what runs destroyed. All controllers that share stacks ask one.
type Ledger interface {
	// Destroyed are the runs of a tenant whose destroys count now.
	Destroyed(ctx context.Context, tenant string) ([]Destroyed, error)
	// Begin records the entry of a run that begins, unless it destroys more than its limits
	// leave: its error is Conflict then.
	Begin(ctx context.Context, b Beginning) error
}

// TenantDetail names in the entry of a beginning the tenant whose limit it counts for.
const TenantDetail = "tenant"

// Withheld says why a plan of a stack that destroys n resources has to wait: less may be destroyed
// in the hour. It asks only if the policies of the stack limit the hour and the plan destroys
// something. No run of the stack goes on.
func Withheld(ctx context.Context, l Ledger, now time.Time, stack string, limits []PerHour, n int) (policy.Withheld, error) {
	if l == nil || len(limits) == 0 || n <= 0 {
		return policy.Withheld{}, nil
	}
	last, err := l.Destroyed(ctx, limits[0].Tenant)
	if err != nil {
		return policy.Withheld{}, fmt.Errorf("reading what the stacks of %s destroyed in the last hour: %w", limits[0].Tenant, err)
	}
	return withheld(last, now, stack, limits, n), nil
}

func withheld(last []Destroyed, now time.Time, stack string, limits []PerHour, n int) policy.Withheld {
	// A run of this stack that has not ended never began, and is the one that is to begin.
	last = slices.DeleteFunc(slices.Clone(last), func(d Destroyed) bool { return d.Stack == stack && !d.Ended })
	slices.SortFunc(last, func(a, b Destroyed) int { return a.until(now).Compare(b.until(now)) })
	before := 0
	for _, d := range last {
		before += d.Resources
	}
	var longest policy.Withheld
	for _, l := range limits {
		if n > l.Most {
			continue // its finding holds the plan, and an approval lets it pass
		}
		sum, until := before, now
		for i := 0; sum+n > l.Most && i < len(last); i++ {
			sum -= last[i].Resources
			until = last[i].until(now)
		}
		if until.After(longest.Until) && until.After(now) {
			longest = policy.Withheld{Policy: l.Policy, Rule: policy.MaxDestroysPerHour, Until: until, Why: fmt.Sprintf(
				"the stacks of %s destroyed %s within the last hour, the plan destroys %d more, and %d in an hour are allowed", l.Tenant, policy.Count(before, "resource"), n, l.Most)}
		}
	}
	return longest
}

// AuditLog is the audit log of this process: audit.Log.
type AuditLog interface {
	Record(ctx context.Context, e audit.Entry) error
	Since(seq uint64, since time.Time, what ...audit.What) (entries []audit.Entry, last uint64, err error)
}

// Hours is the Ledger of the controller that writes the audit log. It keeps nothing that the
// audit log does not say: what began is there before it begins, also of stacks that are gone, and
// whichever controller began it. It reads what is new in the audit log, and only if it is asked.
type Hours struct {
	Log AuditLog
	Now func() time.Time

	mu   sync.Mutex // held while a run begins, so that no two have the same rest of a limit
	read uint64     // up to this entry
	runs map[string]*tenantRun
}

// tenantRun is a run in the ledger.
type tenantRun struct {
	Destroyed
	tenant string
	began  time.Time
}

// longestRun is how long a run may go on before the ledger takes its end for lost.
const longestRun = 24 * time.Hour

// NewHours returns the ledger of an audit log.
func NewHours(log AuditLog, now func() time.Time) *Hours {
	return &Hours{Log: log, Now: now, runs: map[string]*tenantRun{}}
}

// Destroyed implements Ledger. Its error is Later while the audit log is not open.
func (h *Hours) Destroyed(_ context.Context, tenant string) ([]Destroyed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refresh(); err != nil {
		return nil, err
	}
	return h.of(tenant), nil
}

// Begin implements Ledger.
func (h *Hours) Begin(ctx context.Context, b Beginning) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := b.Entry
	if err := h.refresh(); err != nil {
		return err
	}
	if w := withheld(h.of(e.Details[TenantDetail]), h.Now(), e.Object.UID, b.Limits, e.Changes.Destroy); !w.None() {
		return fault.New(fault.Conflict, Changed, fmt.Errorf("%s: %s: %s", w.Policy, w.Rule, w.Why))
	}
	key := keyOf(e)
	for range 2 {
		if err := h.Log.Record(ctx, e); err != nil {
			return err
		}
		if err := h.refresh(); err != nil {
			return err
		}
		if run := h.runs[key]; run != nil && !run.Ended {
			return nil
		}
		// The audit log has the entry of a try from long ago, and leaves out the same one.
		e.ID += "/" + strconv.FormatUint(h.read, 10)
	}
	return fault.New(fault.Later, "AuditLogUnread", fmt.Errorf("the audit log does not have that the run %s begins", e.Run))
}

// Changed is the reason of an error: policies say another thing than in the beginning of a pass.
const Changed = "PoliciesChanged"

// of are the runs of a tenant that count.
func (h *Hours) of(tenant string) (out []Destroyed) {
	now := h.Now()
	for _, r := range h.runs {
		if r.tenant == tenant && r.until(now).After(now) {
			out = append(out, r.Destroyed)
		}
	}
	slices.SortFunc(out, func(a, b Destroyed) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Run, b.Run)) })
	return out
}

// The entries that say something about a run that destroys: those of the runs, and those of
// whatever else the stack does, of which there are far more.
var (
	ofRuns = []audit.What{audit.ApplyStarted, audit.DestroyStarted, audit.Applied, audit.ApplyFailed, audit.Destroyed, audit.DestroyFailed}
	others = []audit.What{
		audit.Planned, audit.PlanFailed, audit.DriftFound, audit.Rejected, audit.StepsStarted, audit.BreakGlassCommand,
		audit.Deleted, audit.Retained, audit.Orphaned,
	}
)

// first reads the audit log for the first time. Other entries count only after a run that has no
// end, which are few.
func (h *Hours) first(now time.Time) (entries []audit.Entry, last uint64, err error) {
	entries, last, err = h.Log.Since(0, now.Add(-longestRun), ofRuns...)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		h.add(e)
	}
	earliest := now
	for _, r := range h.runs {
		if !r.Ended && r.began.Before(earliest) {
			earliest = r.began
		}
	}
	clear(h.runs)
	if earliest.Equal(now) {
		return entries, last, nil
	}
	more, _, err := h.Log.Since(0, earliest, others...)
	entries = append(entries, more...)
	slices.SortFunc(entries, func(a, b audit.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return entries, last, err
}

// refresh reads what is new in the audit log.
func (h *Hours) refresh() error {
	now := h.Now()
	var entries []audit.Entry
	var last uint64
	var err error
	if h.read == 0 {
		entries, last, err = h.first(now)
	} else {
		entries, last, err = h.Log.Since(h.read, now.Add(-longestRun), slices.Concat(ofRuns, others)...)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		h.add(e)
	}
	h.read = last
	for key, r := range h.runs {
		if !r.until(now).After(now) || now.Sub(r.began) >= longestRun && !r.Ended {
			delete(h.runs, key)
		}
	}
	return nil
}

// add takes an entry into the ledger. A stack has one run at a time: whatever it does next says
// that the run before has ended, or never began.
func (h *Hours) add(e audit.Entry) {
	key := keyOf(e)
	if e.What == audit.Applied || e.What == audit.ApplyFailed || e.What == audit.Destroyed || e.What == audit.DestroyFailed {
		if r := h.runs[key]; r != nil {
			r.At, r.Ended = e.At, true
		}
	}
	for of, r := range h.runs {
		if of != key && r.Stack == e.Object.UID {
			r.Ended = true
		}
	}
	starts := e.What == audit.ApplyStarted || e.What == audit.DestroyStarted
	if tenant := e.Details[TenantDetail]; starts && tenant != "" && e.Changes.Destroy > 0 {
		h.runs[key] = &tenantRun{Destroyed{Stack: e.Object.UID, Run: e.Run, Resources: e.Changes.Destroy, At: e.At}, tenant, e.At}
	}
}

func keyOf(e audit.Entry) string { return e.Object.UID + "/" + e.Run }

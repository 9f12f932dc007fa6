package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// scrape is what a collector says, by name and labels as Prometheus writes them.
type scrape map[string]float64

func scraped(t *testing.T, c prometheus.Collector) scrape {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := scrape{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()+written(m)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func written(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if labels == nil {
		return ""
	}
	return "{" + strings.Join(labels, ",") + "}"
}

// has compares some of what was scraped.
func (s scrape) has(t *testing.T, want scrape) {
	t.Helper()
	for series, v := range want {
		if got, ok := s[series]; !ok || got != v {
			t.Errorf("%s = %v (there: %v), want %v", series, got, ok, v)
		}
	}
}

// fixed is a board that stands still.
type fixed struct {
	rows  []*query.Row
	ready bool
}

func (f *fixed) All() ([]*query.Row, bool) { return f.rows, f.ready }

func (f *fixed) Capacity(slots query.Slots) (query.CapacityInfo, error) {
	return query.CapacityInfo{Slots: slots.Runs, SlotsNeeded: 2.5, CycleMet: true, Tenants: map[string]float64{"a": 1.5, "d": 1}}, nil
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func rowAt(namespace string, status query.Status, shape func(*query.Row)) *query.Row {
	r := &query.Row{Status: status, Stack: query.Stack{Namespace: namespace, UID: namespace + string(status), Phase: "NoDrift"}}
	if shape != nil {
		shape(r)
	}
	return r
}

func TestGaugesSayHowStacksStand(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	board := &fixed{ready: true, rows: []*query.Row{
		rowAt("a", query.StatusReady, nil),
		rowAt("e", query.StatusReady, func(r *query.Row) { r.FailingCheckBlocks = &stack.FailingCheckBlocks{Since: ago(5 * time.Hour)} }),
		rowAt("a", query.StatusPending, func(r *query.Row) {
			r.Phase, r.Plan = "AwaitingApproval", &query.PlanInfo{At: ago(time.Hour)}
		}),
		rowAt("b", query.StatusPending, func(r *query.Row) { r.Tenant, r.Plan = "red", &query.PlanInfo{At: ago(3 * time.Hour)} }),
		rowAt("b", query.StatusRunning, func(r *query.Row) {
			r.Plan, r.Run = &query.PlanInfo{At: ago(9 * time.Hour)}, &query.Running{Kind: "apply"}
		}),
		rowAt("c", query.StatusDrifted, func(r *query.Row) { r.Drift = &query.DriftInfo{At: ago(2 * time.Hour)} }),
		rowAt("c", query.StatusLocked, func(r *query.Row) {
			r.Lock = &stack.Lock{Since: "2026-05-01T08:00:00Z", Seen: ago(time.Minute)}
		}),
		rowAt("d", query.StatusLocked, func(r *query.Row) { r.Lock = &stack.Lock{Since: "some day", Seen: ago(time.Minute)} }),
		rowAt("d", query.StatusFailed, func(r *query.Row) { r.Failures, r.Untracked = 2, &stack.Untracked{} }),
	}}
	now := noon
	gauges := stackGauges(board, four, func() time.Time { return now })
	scraped(t, gauges).has(t, scrape{
		`terrier_stacks{status="pending"}`:               2,
		`terrier_stacks{status="suspended"}`:             0,
		`terrier_stacks_phase{phase="AwaitingApproval"}`: 1,
		`terrier_pending_plans`:                          2, // and one that is being applied
		`terrier_pending_plan_oldest_seconds`:            3 * 3600,
		`terrier_stacks_drifted`:                         1,
		`terrier_drift_oldest_seconds`:                   2 * 3600,
		`terrier_state_locks_foreign`:                    2,
		`terrier_state_lock_oldest_seconds`:              4 * 3600,
		`terrier_stacks_failing`:                         1,
		`terrier_stacks_failing_oldest_seconds`:          0,
		`terrier_stacks_with_gap`:                        1,
		`terrier_stacks_with_failing_checks`:             1,
		`terrier_failing_checks_oldest_seconds`:          5 * 3600,
		`terrier_tenant_stacks{tenant="a"}`:              2,
		`terrier_tenant_pending_plans{tenant="red"}`:     1,
		`terrier_tenant_stacks_failing{tenant="d"}`:      1,
		`terrier_slots_needed`:                           2.5,
		`terrier_check_intervals_met`:                    1,
		`terrier_tenant_slots_needed{tenant="a"}`:        1.5,
		`terrier_tenant_slots_needed{tenant="d"}`:        1,
		`terrier_tenant_slots_needed{tenant="b"}`:        0,
	})
	now = now.Add(40 * time.Minute)
	scraped(t, gauges).has(t, scrape{`terrier_stacks_failing_oldest_seconds`: 40 * 60})

	// A stack that was repaired and fails again has not failed in between.
	failing := board.rows
	board.rows = board.rows[:len(board.rows)-1]
	scraped(t, gauges).has(t, scrape{`terrier_stacks_failing`: 0, `terrier_stacks_failing_oldest_seconds`: 0})
	board.rows, now = failing, now.Add(time.Minute)
	scraped(t, gauges).has(t, scrape{`terrier_stacks_failing`: 1, `terrier_stacks_failing_oldest_seconds`: 0})
}

// No number is better than a wrong one: an alert must not end because a
// controller was started again.
func TestGaugesAreSilentUntilStacksAreKnown(t *testing.T) {
	if got := scraped(t, stackGauges(&fixed{}, four, time.Now)); len(got) != 0 {
		t.Errorf("before anything was read, the gauges say %v", got)
	}
}

// allowedLabels are those that gauges may have: none grows with the stacks.
var allowedLabels = []string{"status", "phase", "tenant", "class", "part", "result", "code", "goversion", "version"}

func TestSeriesOfGaugesAreBounded(t *testing.T) {
	board := &fixed{ready: true}
	for i := range 3000 {
		board.rows = append(board.rows, rowAt(fmt.Sprint("n", i), query.StatusReady, nil))
		if i < 2*mostTenants {
			board.rows = append(board.rows, rowAt(fmt.Sprint("n", i), query.StatusFailed, func(r *query.Row) { r.Failures = 1 }))
		}
	}
	r := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		stackGauges(board, four, time.Now), queueGauges(func() (schedule.Backlog, bool) {
			return schedule.Backlog{Classes: make([]schedule.ClassBacklog, 1)}, true
		}, time.Now), newDataGauges(filepath.Join),
	} {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > mostTenants+1 {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
		total := 0.0
		for _, m := range f.GetMetric() {
			total += m.GetGauge().GetValue()
			for _, l := range m.GetLabel() {
				if !slices.Contains(allowedLabels, l.GetName()) {
					t.Errorf("%s has the label %s", f.GetName(), l.GetName())
				}
			}
		}
		if want := 3000.0 + 2*mostTenants; f.GetName() == "terrier_tenant_stacks" && total != want {
			t.Errorf("all tenants together have %v stacks, want %v", total, want)
		}
	}
}

func TestGaugesSayHowFullTheQueueIs(t *testing.T) {
	backlog := schedule.Backlog{
		Running: 3, MaxRuns: 4, Memory: 1 << 30, MaxMemory: 4 << 30,
		Classes: []schedule.ClassBacklog{{Class: "apply", Waiting: 2, OldestSince: noon.Add(-time.Minute)}, {Class: "drift"}},
	}
	gauges := queueGauges(func() (schedule.Backlog, bool) { return backlog, true }, func() time.Time { return noon })
	scraped(t, gauges).has(t, scrape{
		`terrier_queue_waiting{class="apply"}`:        2,
		`terrier_queue_oldest_seconds{class="apply"}`: 60,
		`terrier_queue_waiting{class="drift"}`:        0,
		`terrier_queue_oldest_seconds{class="drift"}`: 0,
		`terrier_runs_at_work`:                        3,
		`terrier_runs_max`:                            4,
		`terrier_runs_memory_charged_bytes`:           1 << 30,
		`terrier_runs_memory_max_bytes`:               4 << 30,
	})
}

func TestGaugesSayWhatFillsTheDisk(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"records/stacks/1/plan~": 100, "records/retained/2~": 23, "cache/sha256/a.tar.gz": 7} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, n), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	d := newDataGauges(func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) })
	for _, part := range kept {
		d.weigh(t.Context(), part)
	}
	got := scraped(t, d)
	got.has(t, scrape{`terrier_data_bytes{part="records"}`: 123, `terrier_data_bytes{part="cache"}`: 7, `terrier_data_bytes{part="artifacts"}`: 0})
	if free, size := got["terrier_data_free_bytes"], got["terrier_data_size_bytes"]; free <= 0 || free > size {
		t.Errorf("%v bytes of %v are free", free, size)
	}
}

// failingStore cannot write.
type failingStore struct {
	blob.Store
	err error
}

func (s failingStore) Put(context.Context, string, io.Reader) error { return s.err }
func (s failingStore) Delete(context.Context, string) error         { return s.err }

func TestWritesOfRecordsAreCounted(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"a write":                {t.Context(), nil, "success"},
		"a disk that is full":    {t.Context(), errors.New("no space left on device"), "error"},
		"a bucket that is down":  {t.Context(), fault.New(fault.Later, "RecordsUnreachable", errors.New("no answer")), "error"},
		"a caller that gave up":  {ended, context.Canceled, ""},
		"what may not be a key":  {t.Context(), fault.New(fault.Invalid, "BlobKeyInvalid", errors.New("no key")), ""},
		"what is larger than it": {t.Context(), fault.New(fault.Invalid, blob.TooLarge, errors.New("too large")), ""},
	} {
		m, err := New("v1", leading)
		if err != nil {
			t.Fatal(err)
		}
		store := meteredBlobs{failingStore{err: c.err}, m.writes}
		if err := store.Put(c.ctx, "a", strings.NewReader("")); !errors.Is(err, c.err) {
			t.Errorf("%s: Put() = %v, want %v", name, err, c.err)
		}
		if err := store.Delete(c.ctx, "a"); !errors.Is(err, c.err) {
			t.Errorf("%s: Delete() = %v, want %v", name, err, c.err)
		}
		for _, result := range []string{"success", "error"} {
			want := 0.0
			if result == c.want {
				want = 2
			}
			scraped(t, m.writes).has(t, scrape{`terrier_records_writes_total{result="` + result + `"}`: want})
		}
	}
}

func TestAnswersFromOutsideAreCounted(t *testing.T) {
	m, err := New("v1", leading)
	if err != nil {
		t.Fatal(err)
	}
	m.Answered(200, 1000)
	m.Answered(204, 24)
	m.Answered(503, 0)
	m.Answered(0, 0)
	scraped(t, m.answers).has(t, scrape{
		`terrier_outbound_answers_total{code="2xx"}`: 2, `terrier_outbound_answers_total{code="4xx"}`: 0,
		`terrier_outbound_answers_total{code="5xx"}`: 1, `terrier_outbound_answers_total{code="error"}`: 1,
	})
	scraped(t, m.received).has(t, scrape{`terrier_outbound_received_bytes_total`: 1024})
}

// Several platforms in one process, as in tests, count by themselves.
func TestPlatformsCountByThemselves(t *testing.T) {
	one, err := New("v1", leading)
	if err != nil {
		t.Fatal(err)
	}
	other, err := New("v1", leading)
	if err != nil {
		t.Fatal(err)
	}
	one.streams.Inc()
	scraped(t, one.streams).has(t, scrape{"terrier_streams_open": 1})
	scraped(t, other.streams).has(t, scrape{"terrier_streams_open": 0})
}

// leading is a process that is active.
func leading() error { return nil }

// four are the slots of these tests.
var four = query.Slots{Runs: 4}

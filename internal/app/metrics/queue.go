package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/schedule"
)

// queueGauges are the metrics of the queue of runs.
func queueGauges(backlog func() (schedule.Backlog, bool), now func() time.Time) prometheus.Collector {
	s := newSheet()
	s.gauge("terrier_queue_waiting", "Queued runs by class: apply, person, spec, upstream or drift.", "class")
	s.gauge("terrier_queue_oldest_seconds", "How long the oldest run of a class has been queued; 0 if none is queued.", "class")
	s.gauge("terrier_runs_active", "Active runs, and slots that are reserved for one.")
	s.gauge("terrier_runs_at_work", "Deprecated: the same as terrier_runs_active.")
	s.gauge("terrier_runs_max", "Number of runs at the same time: --max-runs.")
	s.gauge("terrier_runs_memory_charged_bytes", "Estimated memory of the active runs.")
	s.gauge("terrier_runs_memory_max_bytes", "Memory for all active runs together; 0 is no limit.")
	s.fill = func(set func(string, float64, ...string)) {
		b, ok := backlog()
		if !ok {
			return // the leader has it, and counts all of it
		}
		at := now()
		for _, c := range b.Classes {
			set("terrier_queue_waiting", float64(c.Waiting), c.Class)
			oldest := 0.0
			if !c.OldestSince.IsZero() {
				oldest = max(0, at.Sub(c.OldestSince).Seconds())
			}
			set("terrier_queue_oldest_seconds", oldest, c.Class)
		}
		set("terrier_runs_active", float64(b.Running))
		set("terrier_runs_at_work", float64(b.Running))
		set("terrier_runs_max", float64(b.MaxRuns))
		set("terrier_runs_memory_charged_bytes", float64(b.Memory))
		set("terrier_runs_memory_max_bytes", float64(b.MaxMemory))
	}
	return s
}

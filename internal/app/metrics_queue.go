package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/schedule"
)

// queueGauges says how full the queue of runs is.
func queueGauges(backlog func() schedule.Backlog, now func() time.Time) prometheus.Collector {
	s := newSheet()
	s.gauge("terrier_queue_waiting", "Runs that wait for their turn, by class: apply, person, spec, upstream or drift.", "class")
	s.gauge("terrier_queue_oldest_seconds", "How long the oldest run of a class has waited for its turn; 0 if none waits.", "class")
	s.gauge("terrier_runs_at_work", "Runs at work, and slots that are held for one.")
	s.gauge("terrier_runs_max", "Runs that may be at work at once: --max-runs.")
	s.gauge("terrier_runs_memory_charged_bytes", "Memory that the runs at work are counted with.")
	s.gauge("terrier_runs_memory_max_bytes", "Memory that all runs at work may take together; 0 is no limit.")
	s.fill = func(set func(string, float64, ...string)) {
		b, at := backlog(), now()
		for _, c := range b.Classes {
			set("terrier_queue_waiting", float64(c.Waiting), c.Class)
			oldest := 0.0
			if !c.OldestSince.IsZero() {
				oldest = max(0, at.Sub(c.OldestSince).Seconds())
			}
			set("terrier_queue_oldest_seconds", oldest, c.Class)
		}
		set("terrier_runs_at_work", float64(b.Running))
		set("terrier_runs_max", float64(b.MaxRuns))
		set("terrier_runs_memory_charged_bytes", float64(b.Memory))
		set("terrier_runs_memory_max_bytes", float64(b.MaxMemory))
	}
	return s
}

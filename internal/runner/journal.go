package runner

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// journal is a run's report on disk.
type journal struct {
	dir string
	now func() time.Time

	reserve *reserve

	mu     sync.Mutex
	report Report
}

// update changes the report and writes it down.
func (j *journal) update(change func(*Report)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.report)
	data, err := json.Marshal(j.report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	return j.reserve.writeReport(filepath.Join(j.dir, fileReport), data)
}

// enter writes down that the run is in phase p.
func (j *journal) enter(p Phase) error {
	return j.update(func(r *Report) { r.Phase, r.Since = p, j.now() })
}

// note changes the report without writing it: the next update will.
func (j *journal) note(change func(*Report)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.report)
}

func (j *journal) current() Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report
}

package runner

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// reportFile is a run's report on disk.
type reportFile struct {
	dir string
	now func() time.Time

	reserve *disk.Reserve

	mu     sync.Mutex
	report Report
}

// update changes the report and writes it down.
func (j *reportFile) update(change func(*Report)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.report)
	data, err := json.Marshal(j.report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	return j.reserve.WriteReport(filepath.Join(j.dir, fileReport), data)
}

// enter writes down that the run is in phase p.
func (j *reportFile) enter(p Phase) error {
	return j.update(func(r *Report) { r.Phase, r.Since = p, j.now() })
}

// set changes the report without writing it: the next update will.
func (j *reportFile) set(change func(*Report)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.report)
}

func (j *reportFile) current() Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report
}

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
func (f *reportFile) update(change func(*Report)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.report)
	data, err := json.Marshal(f.report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	return f.reserve.WriteReport(filepath.Join(f.dir, fileReport), data)
}

// enter writes down that the run is in phase p.
func (f *reportFile) enter(p Phase) error {
	return f.update(func(r *Report) { r.Phase, r.Since = p, f.now() })
}

// set changes the report without writing it: the next update will.
func (f *reportFile) set(change func(*Report)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.report)
}

func (f *reportFile) content() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.report
}

package clienttest

import (
	"errors"
	"io"
	"sync"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
)

// runs is at most one run that goes on.
type runs struct {
	mu   sync.Mutex
	live *runner.Report
	log  []byte
}

func (r *runs) begin(report runner.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.log = &report, nil
}

func (r *runs) write(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, text...)
}

// end ends the run; its log stays open for its readers.
func (r *runs) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = nil
}

func (r *runs) Current(uid string) (*runner.Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil || r.live.Stack != uid {
		return nil, nil
	}
	report := *r.live
	return &report, nil
}

func (r *runs) Open(uid, run, file string) (io.ReadCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil || r.live.Stack != uid || r.live.ID != run || file != runner.FileLog {
		return nil, fault.New(fault.Missing, "FileMissing", errors.New("no such file"))
	}
	return &opened{runs: r}, nil
}

// opened is the open log of a run.
type opened struct {
	runs *runs
	at   int
}

func (o *opened) Read(p []byte) (int, error) {
	o.runs.mu.Lock()
	defer o.runs.mu.Unlock()
	n := copy(p, o.runs.log[o.at:])
	if o.at += n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (*opened) Close() error { return nil }

package recordstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
)

// world is a store and a runner in memory, one stack at a time.
type world struct {
	mu     sync.Mutex
	blobs  map[string]string
	broken error
	live   *runner.Report
	log    *bytes.Buffer // of the run that goes on; nil until something is written
}

func newWorld() *world { return &world{blobs: map[string]string{}} }

func (w *world) put(key, content string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blobs[key] = content
}

// keep stores a run that has ended.
func (w *world) keep(r runner.Report, log string) { w.keepAs(r.ID, r, log) }

// keepAs stores a run under another name than its own.
func (w *world) keepAs(name string, r runner.Report, log string) {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	w.put(record.Run(Stack.UID, name, record.ReportFile), string(raw))
	w.put(record.Run(Stack.UID, name, runner.FileLog), log)
}

// keepGone stores the last run of a deleted stack.
func (w *world) keepGone(kind, uid string, r runner.Report, of kube.Origin, log string) {
	raw, err := json.Marshal(struct {
		runner.Report
		kube.Origin
	}{r, of})
	if err != nil {
		panic(err)
	}
	w.put(record.Gone(kind, Gone.Namespace, Gone.Name, uid, record.ReportFile), string(raw))
	w.put(record.Gone(kind, Gone.Namespace, Gone.Name, uid, runner.FileLog), log)
}

func (w *world) begin(r runner.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live, w.log = &r, nil
}

func (w *world) write(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log == nil {
		w.log = &bytes.Buffer{}
	}
	w.log.WriteString(text)
}

// end ends the run that goes on, keeps what it left, and forgets it, in the
// order in which a controller does.
func (w *world) end() {
	w.mu.Lock()
	r, log := *w.live, w.log.String()
	w.mu.Unlock()
	r.Phase = runner.Done
	w.keep(r, log)
	w.mu.Lock()
	w.live = nil
	w.mu.Unlock()
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blobs, w.live = map[string]string{}, nil
}

func (w *world) breakDown(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = err
}

func (w *world) Get(_ context.Context, key string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	content, ok := w.blobs[key]
	if !ok {
		return nil, fault.New(fault.Missing, "BlobMissing", fmt.Errorf("no blob %s", key))
	}
	return []byte(content), nil
}

func (w *world) List(_ context.Context, prefix string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []string
	for key := range w.blobs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, w.broken
}

func (w *world) Current(uid string) (*runner.Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live == nil || uid != Stack.UID {
		return nil, nil
	}
	r := *w.live
	return &r, nil
}

func (w *world) Open(uid, run, file string) (io.ReadCloser, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live == nil || uid != Stack.UID || run != w.live.ID || file != runner.FileLog || w.log == nil {
		return nil, fault.New(fault.Missing, "FileMissing", fmt.Errorf("run %s left no %s", run, file))
	}
	return &opened{world: w, log: w.log}, nil
}

// opened is an open file: it stays readable after the run is forgotten.
type opened struct {
	world *world
	log   *bytes.Buffer
	at    int
}

func (o *opened) Read(p []byte) (int, error) {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	rest := o.log.Bytes()[o.at:]
	if len(rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, rest)
	o.at += n
	return n, nil
}

func (o *opened) Close() error { return nil }

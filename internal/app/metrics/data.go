package metrics

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// kept are the directories below the data directory that grow with use.
var kept = [...]string{"records", "artifacts", "cache", "registry", "packages"}

// weighEvery is how often they are walked. With ten thousand stacks they hold
// hundreds of thousands of files, so a scrape does not do it.
const weighEvery = 15 * time.Minute

// dataGauges are the use of the disk of a data directory, and its parts.
type dataGauges struct {
	*sheet
	dir func(...string) string

	mu    sync.Mutex
	bytes map[string]int64
}

func newDataGauges(dir func(...string) string) *dataGauges {
	d := &dataGauges{sheet: newSheet(), dir: dir, bytes: map[string]int64{}}
	d.gauge("terrier_data_free_bytes", "Free bytes of the file system of the data directory.")
	d.gauge("terrier_data_size_bytes", "Size of the file system of the data directory in bytes.")
	d.gauge("terrier_data_bytes", "Bytes of files by part of the data directory, at most 15 minutes old.", "part")
	d.fill = func(set func(string, float64, ...string)) {
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir(), &s); err == nil {
			set("terrier_data_free_bytes", float64(s.Bavail)*float64(s.Bsize))
			set("terrier_data_size_bytes", float64(s.Blocks)*float64(s.Bsize))
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for part, n := range d.bytes {
			set("terrier_data_bytes", float64(n), part)
		}
	}
	return d
}

// run weighs the directories periodically, until ctx ends.
func (d *dataGauges) run(ctx context.Context) error {
	tick := time.NewTicker(weighEvery)
	defer tick.Stop()
	for {
		for _, part := range kept {
			d.weigh(ctx, part)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (d *dataGauges) weigh(ctx context.Context, part string) {
	n, err := weight(ctx, os.DirFS(d.dir(part)))
	if err != nil {
		return // the last value stays until the next time
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes[part] = n
}

// weight is the size of all files of a tree. Files that are deleted meanwhile are
// not counted.
func weight(ctx context.Context, tree fs.FS) (n int64, err error) {
	err = fs.WalkDir(tree, ".", func(_ string, e fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || !e.Type().IsRegular():
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

var _ prometheus.Collector = (*dataGauges)(nil)

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reapEvery is how often the first process of a container looks for dead orphans.
const reapEvery = 5 * time.Second

// reapOrphans waits for what a supervisor that was killed has left, if this is the first
// process of a container: its orphans are children of this process, and stay as zombies
// until then.
func (f *following) reapOrphans(ctx context.Context) {
	if os.Getpid() != 1 || f.failed != nil {
		return
	}
	f.work.Go(func() {
		tick := time.NewTicker(reapEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if r, err := f.current(); err == nil && r.PID != 0 {
					reap(r.PID)
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// reap waits for every dead child but one, for which another part of this program
// waits.
func reap(but int) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return
	}
	for _, path := range lists {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, text := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(text); err == nil && pid != but {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // one that lives is left alone
			}
		}
	}
}

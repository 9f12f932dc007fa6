package sandbox

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// Level is how well a sandbox isolates.
type Level int

// The levels. A sandbox never has less than its level promises. An older kernel
// lacks single rights of Landlock, which Probe reports.
const (
	None   Level = iota // no sandbox
	Basic               // another user if we are root, the same for all runs; limits; an end for everything it started
	Kernel              // and Landlock and a system call filter
	Full                // and namespaces and a tree of its own, no capabilities
)

// String is the level's name.
func (l Level) String() string {
	switch l {
	case None:
		return "none"
	case Basic:
		return "basic"
	case Kernel:
		return "kernel"
	case Full:
		return "full"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// Probed is what this machine can do.
type Probed struct {
	Level   Level    // the best that works
	Reasons []string // which layers are on, and why it is not better
}

// probeTime is ample: a sandbox takes milliseconds.
const probeTime = 10 * time.Second

// Probe builds the best sandbox that works here, once, and reports its parts.
func Probe() Probed { return probed() }

var probed = sync.OnceValue(func() Probed {
	var p Probed
	landlock, seccomp := landlockVersion(), filters()
	if err := tryFull(); err != nil {
		p.Reasons = append(p.Reasons, "no namespaces: "+err.Error())
		p.Level = Basic
		if landlock >= 4 && seccomp {
			p.Level = Kernel
		}
	} else {
		p.Level = Full
		p.Reasons = append(p.Reasons, "own user, process, mount, network, IPC and host name namespaces; no capabilities")
	}
	p.Reasons = append(p.Reasons, landlockReason(landlock))
	if seccomp {
		p.Reasons = append(p.Reasons, "system call filter")
	} else {
		p.Reasons = append(p.Reasons, "no system call filter: the kernel has none")
	}
	if _, another := runAs(); !another && p.Level < Full {
		p.Reasons = append(p.Reasons, "runs are not another user: we are not root")
	}
	if g := newCgroup(&Config{Limits: Limits{Memory: 1 << 30}}); g != nil {
		g.remove()
		p.Reasons = append(p.Reasons, "memory is bounded for a sandbox as a whole")
	} else {
		p.Reasons = append(p.Reasons, "memory is bounded by process only: no control group can be made")
	}
	return p
})

func landlockReason(version int) string {
	switch {
	case version == 0:
		return "no Landlock: the kernel has none"
	case version < 4:
		return fmt.Sprintf("Landlock version %d, which knows no ports", version)
	case version < 6:
		return fmt.Sprintf("Landlock version %d, which knows neither abstract sockets nor signals", version)
	default:
		return fmt.Sprintf("Landlock version %d", version)
	}
}

// tryFull enters a Full sandbox and leaves it without running anything.
func tryFull() error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	p, err := Start(ctx, Command{
		Path:    self,
		Sandbox: &Config{Level: Full, Work: os.TempDir(), Network: NoNetwork},
		probe:   true,
	})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

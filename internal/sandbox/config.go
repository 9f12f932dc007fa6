package sandbox

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// defaultTmp bounds the private scratch space of a sandbox that names no bound.
const defaultTmp = 512 << 20

// Config confines a program. At Full it sees a tree of its own: the system's
// programs and libraries read-only, the binds, the work directory, and empty
// private /tmp, /home and /dev/shm. Below Full there is no tree of its own:
// see PathInside.
type Config struct {
	Level    Level    // how well; not None
	Work     string   // host directory, seen read-write at /work, see PathInside and ChownWork
	Dir      string   // working directory, relative to /work
	ReadOnly []Bind   // shown read-only; must exist
	Writable []string // host directories shown read-write at the same path
	Network  Network
	Home     string   // of the users that a Full sandbox has, for programs that do not ask HOME; empty is /home
	Ports    []uint16 // host network: the only TCP ports that may be connected to; empty is all
	TmpBytes int64    // bound on /tmp, /home and /dev/shm together; 0 is 512 MiB
	Limits   Limits
	Shared   bool // other programs may have a sandbox here once this one is gone, and must find nothing of it
	OwnShm   bool // /dev/shm is this sandbox's alone below Full, too, as in a container that has no other
	Listen   bool // make a loopback TCP listener in the sandbox's network before the program starts
}

// Bind shows a host file or directory inside a sandbox. Links on the way to it
// are followed, so nothing that a run can write may lie on that way.
type Bind struct{ Host, Inside string }

// Network is what a sandbox can reach.
type Network string

// The networks of a sandbox. On the host's, UDP and whatever listens on the
// host's loopback are within reach.
const (
	NoNetwork   Network = "none" // a loopback of its own, nothing else
	HostNetwork Network = "host"
)

// Limits bound what a sandbox uses. Zero is unlimited. Core dumps are always
// off.
type Limits struct {
	Memory    int64 // bytes, of the whole sandbox where a cgroup can be made, else of each process
	FileBytes int64 // of one file
	OpenFiles int   // of one process
	Processes int   // processes and threads of the whole sandbox; below Full only where a cgroup can be made
}

// PathInside is where a program in the sandbox finds what a Full sandbox shows
// at inside, a path at or below /work, /tmp, /home or a bind. At Full that is
// inside itself; below Full it is a host path. Arguments and environment
// variables that hold paths are built with it. Where the host has a directory below /work
// that is shown at its own path, the work directory is elsewhere.
func (b *Config) PathInside(inside string) string {
	if b.Level == Full {
		if rest, ok := under(inside, workInside); ok {
			return path.Join(b.workInside(), rest)
		}
		return inside
	}
	for _, r := range b.shown() {
		if rest, ok := under(inside, r.Inside); ok {
			return filepath.Join(r.Host, rest)
		}
	}
	return inside
}

// scratch stands for /tmp below Full. Short, for providers make sockets there,
// and a socket's path has session for 107 bytes.
func (b *Config) scratch() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(b.Work))
	return fmt.Sprintf("/tmp/terrier-%016x", h.Sum64())
}

// shown lists what is not at its host path, the most specific first.
func (b *Config) shown() []Bind {
	shown := make([]Bind, 0, len(b.ReadOnly)+3)
	for i := len(b.ReadOnly) - 1; i >= 0; i-- {
		shown = append(shown, b.ReadOnly[i])
	}
	scratch := b.scratch()
	return append(shown, Bind{b.Work, workInside}, Bind{filepath.Join(scratch, "home"), "/home"}, Bind{scratch, "/tmp"})
}

// under reports whether p is dir or below it, and the rest of the path.
func under(p, dir string) (string, bool) {
	if p == dir {
		return "", true
	}
	return strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// workInside is where the work directory is seen, and by what name PathInside knows it.
const workInside = "/work"

// workInside is where a Full sandbox shows the work directory: at another place than all
// that it shows at the path of the host.
func (b *Config) workInside() string {
	at := workInside
	for n := 2; slices.ContainsFunc(b.binds(), func(bind Bind) bool { return bind.samePath() && meet(bind.Inside, at) }); n++ {
		at = fmt.Sprintf("%s-%d", workInside, n)
	}
	return at
}

// meet reports whether one of two paths is the other one, or below it.
func meet(p, q string) bool {
	_, below := under(p, q)
	_, above := under(q, p)
	return below || above
}

// samePath reports whether b is the host's own place.
func (b Bind) samePath() bool { return b.Host == b.Inside }

// binds are all that is shown beside the work directory.
func (b *Config) binds() []Bind {
	binds := slices.Clone(b.ReadOnly)
	for _, w := range b.Writable {
		binds = append(binds, Bind{w, w})
	}
	return binds
}

// reserved are the places of a sandbox that a bind may not cover or reach into.
var reserved = []string{"/proc", "/dev"}

func (b *Config) check() error {
	if b.Level < Basic || b.Level > Full {
		return fmt.Errorf("a sandbox cannot have level %s", b.Level)
	}
	if b.Network != NoNetwork && b.Network != HostNetwork {
		return fmt.Errorf("unknown network %q", b.Network)
	}
	if b.Network == NoNetwork && b.Level == Basic {
		return errors.New("level basic cannot remove the network")
	}
	if b.Dir != "" && !filepath.IsLocal(b.Dir) {
		return fmt.Errorf("the directory %q leaves the work directory", b.Dir)
	}
	if b.TmpBytes < 0 || min(b.Limits.Memory, b.Limits.FileBytes, int64(b.Limits.OpenFiles), int64(b.Limits.Processes)) < 0 {
		return errors.New("a limit is negative")
	}
	if !cleanAbsolute(b.Work) {
		return fmt.Errorf("the work directory %q is not a clean absolute path", b.Work)
	}
	for _, bind := range b.binds() {
		if err := bind.check(); err != nil {
			return err
		}
	}
	return nil
}

func (b Bind) check() error {
	if !cleanAbsolute(b.Host) || !cleanAbsolute(b.Inside) {
		return fmt.Errorf("cannot show %q at %q: not a clean absolute path", b.Host, b.Inside)
	}
	places := reserved
	if !b.samePath() {
		places = append(reserved[:len(reserved):len(reserved)], workInside)
	}
	for _, r := range places {
		if _, inside := under(b.Inside, r); inside {
			return fmt.Errorf("cannot show %s at %s: %s belongs to the sandbox", b.Host, b.Inside, r)
		}
	}
	return nil
}

func cleanAbsolute(p string) bool {
	return path.IsAbs(p) && p != "/" && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

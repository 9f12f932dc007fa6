// Package remotetest makes places of package remote out of processes of this machine:
// what a cluster does with pods, without a cluster. A place is a directory and an agent
// that runs in it; it survives the process that made it, as a pod does.
//
// It isolates nothing. Start reading at Launcher.
package remotetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/agent"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Launcher is a remote.Launcher of processes.
type Launcher struct {
	unbounded

	Dir       string // of all places
	Binary    string // that runs agent.Program with the argument agent.Argument, and writes its exit code with Exit
	URL       string // of the controller, for the agents of places that are made from now on
	Authority []byte

	// Prepare is called with the directory of a place before its agent starts; nil
	// does nothing. With an error there is no place.
	Prepare func(l remote.Launch, dir string) error
	// Reused is called after the names of another run were written on a place; nil does
	// nothing.
	Reused func() error
	// Hold keeps the agents of new places from starting.
	Hold bool

	changed chan remote.Place
	failing atomic.Pointer[error]
	doubt   atomic.Pointer[string]
	once    sync.Once
	work    sync.WaitGroup
	stop    chan struct{}
}

// Files of a place.
const (
	fileKey   = "key"
	fileSeal  = "seal"
	fileUID   = "uid"
	fileToken = "token"
	fileLog   = "agent.log"
	filePID   = "pid"
	fileExit  = "exit"
	dirAgent  = "agent"
)

// unbounded is the part of a Launcher that always has room.
type unbounded struct{}

// Room implements remote.Launcher.
func (unbounded) Room(context.Context, remote.Launch) error { return nil }

// EnvExit names the file that the binary of a Launcher writes its exit code to.
const EnvExit = "TERRIER_TEST_EXIT"

// Exit ends the process of an agent as a Launcher expects it.
func Exit(code int) {
	if path := os.Getenv(EnvExit); path != "" {
		_ = disk.Write(path, []byte(strconv.Itoa(code)))
	}
	os.Exit(code)
}

func (l *Launcher) open() {
	l.once.Do(func() { l.changed, l.stop = make(chan remote.Place), make(chan struct{}) })
}

// Close ends every place.
func (l *Launcher) Close() error {
	l.open()
	places, err := l.Places(context.Background())
	for _, p := range places {
		err = errors.Join(err, l.End(context.Background(), p, 0))
	}
	close(l.stop)
	l.work.Wait()
	return err
}

func (l *Launcher) dir(p remote.Place) string { return filepath.Join(l.Dir, p.Name) }

// Tell says that the life of a place changed.
func (l *Launcher) Tell(p remote.Place) {
	l.open()
	l.changed <- p
}

// Fail makes End fail from now on; nil makes it work again.
func (l *Launcher) Fail(err error) { l.failing.Store(&err) }

// Doubt makes Look say a message about each place whose agent may be running.
func (l *Launcher) Doubt(message string) { l.doubt.Store(&message) }

// PlaceDir is the directory of a place.
func (l *Launcher) PlaceDir(p remote.Place) string { return l.dir(p) }

// AgentDir is the directory of the agent of a place.
func (l *Launcher) AgentDir(p remote.Place) string { return filepath.Join(l.dir(p), dirAgent) }

// Launch implements remote.Launcher.
func (l *Launcher) Launch(ctx context.Context, what remote.Launch) (remote.Place, error) {
	l.open()
	p := remote.Place{Namespace: "test", Name: what.Name}
	dir := l.dir(p)
	if l.read(p, fileUID) == "" { // a Launch that did not come to its end
		if err := os.RemoveAll(dir); err != nil {
			return p, err
		}
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fault.New(fault.Conflict, "PlaceExists", err)
		}
		return p, err
	}
	if l.Prepare != nil {
		if err := l.Prepare(what, dir); err != nil {
			return p, errors.Join(err, os.RemoveAll(dir))
		}
	}
	p.UID = random()
	// The UID is the last: without it there is no place.
	for _, f := range [][2]string{{fileKey, what.Key}, {fileSeal, what.Seal}, {fileToken, random()}, {fileUID, p.UID}} {
		if err := disk.Write(filepath.Join(dir, f[0]), []byte(f[1])); err != nil {
			return p, err
		}
	}
	if l.Hold {
		return p, nil
	}
	return p, l.Start(p)
}

// Start starts the agent of a place.
func (l *Launcher) Start(p remote.Place) error {
	l.open()
	dir := l.dir(p)
	out, err := os.OpenFile(filepath.Join(dir, fileLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	o := agent.Options{URL: l.URL, Authority: l.Authority, Token: filepath.Join(dir, fileToken), Dir: filepath.Join(dir, dirAgent), Stack: l.read(p, fileKey)}
	env := append(o.Environ(), EnvExit+"="+filepath.Join(dir, fileExit))
	proc, err := sandbox.Start(context.Background(), sandbox.Command{Path: l.Binary, Args: []string{agent.Argument},
		Env: env, Stdout: out, Stderr: out, Detached: true})
	if err != nil {
		return err
	}
	if err := disk.Write(filepath.Join(dir, filePID), []byte(strconv.Itoa(proc.PID()))); err != nil {
		return errors.Join(err, proc.Kill())
	}
	l.work.Go(func() {
		_, _ = proc.Wait() // how it ended is in the file
		l.killRun(p)
		select {
		case l.changed <- p:
		case <-l.stop:
		}
	})
	return nil
}

func random() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func (l *Launcher) read(p remote.Place, name string) string {
	data, err := os.ReadFile(filepath.Join(l.dir(p), name))
	if err != nil {
		return ""
	}
	return string(data)
}

// PID is the process of the agent of a place, 0 if it is dead.
func (l *Launcher) PID(p remote.Place) int {
	pid, err := strconv.Atoi(l.read(p, filePID))
	if err != nil {
		return 0
	}
	// A zombie has no command line, and another process another one.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !strings.Contains(string(line), l.dir(p)+"/") {
		return 0
	}
	return pid
}

// Look implements remote.Launcher.
func (l *Launcher) Look(_ context.Context, p remote.Place) (remote.Life, error) {
	switch {
	case l.read(p, fileUID) != p.UID || p.UID == "":
		return remote.Life{State: remote.Gone}, nil
	case l.read(p, filePID) == "":
		return remote.Life{State: remote.Pending, Reason: "Held", Message: "the test holds the agent"}, nil
	case l.PID(p) != 0 || l.running(p):
		life := remote.Life{State: remote.Running}
		if doubt := l.doubt.Load(); doubt != nil {
			life.Message = *doubt
		}
		return life, nil
	}
	code, err := strconv.Atoi(l.read(p, fileExit))
	if err != nil {
		return remote.Life{State: remote.Ended, Reason: "Killed", Exit: 137}, nil
	}
	return remote.Life{State: remote.Ended, Exit: code}, nil
}

// End implements remote.Launcher.
func (l *Launcher) End(_ context.Context, p remote.Place, grace time.Duration) error {
	l.open()
	if failing := l.failing.Load(); failing != nil && *failing != nil {
		return *failing
	}
	if l.read(p, fileUID) != p.UID {
		return nil
	}
	if err := l.Signal(p, syscall.SIGTERM); err != nil {
		return err
	}
	if grace <= 0 {
		return l.Kill(p)
	}
	l.work.Go(func() {
		over := time.After(grace)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for l.PID(p) != 0 {
			select {
			case <-tick.C:
				continue
			case <-over:
			case <-l.stop:
			}
			break
		}
		_ = l.Kill(p) // what is left is seen by Look
		select {
		case l.changed <- p:
		case <-l.stop:
		}
	})
	return nil
}

// Signal sends a signal to the agent of a place.
func (l *Launcher) Signal(p remote.Place, s syscall.Signal) error {
	pid := l.PID(p)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Kill removes a place with all of its processes at once, as a node that is lost
// does.
func (l *Launcher) Kill(p remote.Place) error {
	if err := l.Signal(p, syscall.SIGKILL); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for l.PID(p) != 0 {
		<-tick.C
	}
	l.killRun(p)
	if l.read(p, fileUID) != p.UID {
		return nil
	}
	return l.remove(p)
}

// remove removes the directory of a place. The place is there as long as anything of it
// is.
func (l *Launcher) remove(p remote.Place) error {
	entries, err := os.ReadDir(l.dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		switch e.Name() {
		case fileUID, filePID, fileExit: // Look reads them: the place has ended until it is gone
		default:
			err = errors.Join(err, os.RemoveAll(filepath.Join(l.dir(p), e.Name())))
		}
	}
	if err == nil {
		err = os.Remove(filepath.Join(l.dir(p), fileUID))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // another one removes it
		return err
	}
	return os.RemoveAll(l.dir(p))
}

// reports lists the runs of the agent of a place, which are on disk.
func (l *Launcher) reports(p remote.Place) []string {
	dirs, err := filepath.Glob(filepath.Join(l.AgentDir(p), "runner", "runs", "*", "*"))
	if err != nil {
		return nil
	}
	return dirs
}

// running reports whether a supervisor of the place is alive.
func (l *Launcher) running(p remote.Place) bool {
	for _, dir := range l.reports(p) {
		if alive, err := disk.IsLocked(filepath.Join(dir, "lock")); err == nil && alive {
			return true
		}
	}
	return false
}

// killRun kills the supervisor of a place, as the end of the first process of a
// container does.
func (l *Launcher) killRun(p remote.Place) {
	for _, dir := range l.reports(p) {
		r, err := runner.ReadReport(dir)
		if alive, _ := disk.IsLocked(filepath.Join(dir, "lock")); err != nil || !alive || r.PID == 0 {
			continue
		}
		_ = syscall.Kill(r.PID, syscall.SIGKILL)
		for alive := true; alive; {
			alive, err = disk.IsLocked(filepath.Join(dir, "lock"))
			if err != nil {
				return
			}
		}
	}
}

// Places implements remote.Launcher.
func (l *Launcher) Places(context.Context) ([]remote.Place, error) {
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return nil, err
	}
	var places []remote.Place
	for _, e := range entries {
		p := remote.Place{Namespace: "test", Name: e.Name()}
		p.UID, p.Key, p.Seal = l.read(p, fileUID), l.read(p, fileKey), l.read(p, fileSeal)
		if p.UID != "" {
			places = append(places, p)
		}
	}
	return places, nil
}

// Shape implements remote.Sharer: places with the same template are the same.
func (l *Launcher) Shape(what remote.Launch) (string, error) {
	if what.Job.Pod == nil {
		return "plain", nil
	}
	return "of " + what.Job.Pod.Account + string(what.Job.Pod.Template), nil
}

// Reuse implements remote.Sharer.
func (l *Launcher) Reuse(_ context.Context, p remote.Place, what remote.Launch) error {
	if l.read(p, fileUID) != p.UID || l.PID(p) == 0 && l.read(p, filePID) != "" {
		return fault.New(fault.Conflict, "PlaceGone", errors.New("the place is gone"))
	}
	dir := l.dir(p)
	err := errors.Join(disk.Write(filepath.Join(dir, fileSeal), []byte(what.Seal)), disk.Write(filepath.Join(dir, fileKey), []byte(what.Key)))
	if err == nil && l.Reused != nil {
		err = l.Reused()
	}
	return err
}

// Changed implements remote.Launcher.
func (l *Launcher) Changed() <-chan remote.Place {
	l.open()
	return l.changed
}

// Identify is a remote.Identify: the token is in the directory of its place.
func (l *Launcher) Identify(ctx context.Context, token string) (remote.Place, error) {
	places, err := l.Places(ctx)
	if err != nil {
		return remote.Place{}, err
	}
	for _, p := range places {
		if l.read(p, fileToken) == token {
			return p, nil
		}
	}
	return remote.Place{}, fault.New(fault.Denied, "TokenDenied", errors.New("no place has this token"))
}

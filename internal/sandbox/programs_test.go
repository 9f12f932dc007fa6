package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// selfReport is what a program can tell about itself.
type selfReport struct {
	Args, Env []string
	Dir, Host string
	Status    map[string]string // of /proc/self/status, where there is one
	Limits    map[string]unix.Rlimit
	Open      []int // descriptors
	Umask     int
	Leader    bool // of a session
}

func printSelf([]string) error {
	r := selfReport{Args: os.Args[1:], Env: os.Environ(), Status: map[string]string{}, Limits: map[string]unix.Rlimit{}}
	r.Dir, _ = os.Getwd()
	r.Host, _ = os.Hostname()
	r.Umask = unix.Umask(0)
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			r.Status[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	for name, resource := range map[string]int{
		"core": unix.RLIMIT_CORE, "fsize": unix.RLIMIT_FSIZE, "nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC,
	} {
		var l unix.Rlimit
		if err := unix.Getrlimit(resource, &l); err != nil {
			return err
		}
		r.Limits[name] = l
	}
	for fd := range 1024 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 { // the runtime's own are not inherited
			r.Open = append(r.Open, fd)
		}
	}
	sid, err := unix.Getsid(0)
	r.Leader = err == nil && sid == os.Getpid()
	return printJSON(r)
}

// countInterrupts has a child in its process group, and prints how many
// interrupts each of both got until its standard input ended.
func countInterrupts(args []string) error {
	got := make(chan os.Signal, 16)
	signal.Notify(got, os.Interrupt)
	var child *exec.Cmd
	var childIn io.WriteCloser
	if len(args) == 0 {
		child = exec.Command(os.Args[0], "count", "child")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		in, err := child.StdinPipe()
		if err != nil {
			return err
		}
		childIn = in
		if err := child.Start(); err != nil {
			return err
		}
	} else {
		fmt.Println("child is up")
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if child != nil {
		<-got // the one that must come
		_ = childIn.Close()
		if err := child.Wait(); err != nil {
			return err
		}
		fmt.Println("program", 1+len(got))
		return nil
	}
	fmt.Println("child", len(got))
	return nil
}

func exitWith(args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

// forever lives until it is killed. Waiting for a signal, which never comes, is
// not a deadlock to the runtime, as an empty select can be.
func forever() error {
	never := make(chan os.Signal, 1)
	signal.Notify(never, unix.SIGUSR1)
	<-never
	return errors.New("woken")
}

// hold prints a line and lives until it is killed.
func hold([]string) error {
	fmt.Println("held")
	return forever()
}

// startDaemon leaves a child behind, in a session of its own, that keeps
// descriptor 3, and ends.
func startDaemon([]string) error {
	daemon := exec.Command(os.Args[0], "hold")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	daemon.ExtraFiles = []*os.File{os.NewFile(3, "kept")}
	out, err := daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := daemon.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// startGroup has a child that keeps descriptor 3, in its group, and stays.
func startGroup([]string) error {
	child := exec.Command(os.Args[0], "hold")
	child.ExtraFiles = []*os.File{os.NewFile(3, "kept")}
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		return err
	}
	return forever()
}

// leaveChild leaves a child behind that keeps its output.
func leaveChild([]string) error {
	child := exec.Command(os.Args[0], "hold")
	child.ExtraFiles = []*os.File{os.Stdout}
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	fmt.Print(line)
	return err
}

// detach starts a detached program that keeps descriptor 3, and ends.
func detach([]string) error {
	p, err := Start(context.Background(), Command{
		Path: os.Args[0], Args: []string{"hold"}, Detached: true, ExtraFiles: []*os.File{os.NewFile(3, "kept")},
	})
	if err != nil {
		return err
	}
	fmt.Println(p.PID())
	return nil
}

// order is a command for another process to start.
type order struct {
	Path    string
	Args    []string
	Sandbox *Config
}

// errand is the standard input of an act that starts a command.
func errand(t testing.TB, c Command) io.Reader {
	t.Helper()
	text, err := json.Marshal(order{c.Path, c.Args, c.Sandbox})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(text)
}

func startErrand() (*Process, error) {
	armed.Store(true)
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return nil, err
	}
	return Start(context.Background(), Command{Path: o.Path, Args: o.Args, Sandbox: o.Sandbox, Stdout: os.Stdout, Stderr: os.Stderr})
}

// startAndHold prints the program's process id, and lives until it is killed.
func startAndHold([]string) error {
	p, err := startErrand()
	if err != nil {
		return err
	}
	fmt.Println("pid", p.PID())
	return forever()
}

// openAndHold is startAndHold in a session.
func openAndHold([]string) error {
	armed.Store(true)
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	r, err := OpenSession(context.Background(), *o.Sandbox)
	if err != nil {
		return err
	}
	if _, err := r.Start(Command{Path: o.Path, Args: o.Args, Stdout: os.Stdout}); err != nil {
		return err
	}
	return forever()
}

func startAndWait([]string) error {
	p, err := startErrand()
	if err != nil {
		return err
	}
	exit, err := p.Wait()
	if err == nil && !exit.OK() {
		err = fmt.Errorf("the program: %v", exit)
	}
	return err
}

// forkBomb starts children until it cannot, and prints how many there were.
func forkBomb([]string) error {
	runtime.GOMAXPROCS(1)
	const enough = 2000
	n := 0
	for ; n < enough; n++ {
		if err := exec.Command(os.Args[0], "hold").Start(); err != nil {
			break
		}
	}
	return printJSON(n)
}

// allocate uses as many bytes of memory as it is told.
func allocate(args []string) error {
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return nil
}

// fill writes a file of as many bytes as it is told, and prints how far it came.
func fill(args []string) error {
	signal.Ignore(unix.SIGXFSZ)
	size, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	var written int64
	for written < size {
		n, err := f.Write(block)
		written += int64(n)
		if err != nil {
			break
		}
	}
	return errors.Join(f.Close(), printJSON(written))
}

// echo copies its standard input to both outputs.
func echo([]string) error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "out %s", in)
	fmt.Fprintf(os.Stderr, "err %s", in)
	return nil
}

// dial sends a line to the address it was given and prints the answer.
func dial([]string) error {
	c, err := net.Dial("tcp", os.Getenv("ADDRESS"))
	if err != nil {
		return err
	}
	fmt.Fprintln(c, "ping")
	answer, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(answer)
	return errors.Join(err, c.Close())
}

// scatter writes a file of a name in every directory it is told, and prints
// what stopped it.
func scatter(args []string) error {
	stopped := map[string]string{}
	for _, dir := range args[1:] {
		stopped[dir] = ""
		if err := os.WriteFile(filepath.Join(dir, args[0]), []byte("here"), 0o644); err != nil {
			stopped[dir] = err.Error()
		}
	}
	return printJSON(stopped)
}

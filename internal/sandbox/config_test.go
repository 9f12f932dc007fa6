package sandbox

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestAProgramHasWhatItIsGivenAndNoMore(t *testing.T) {
	if err := os.Setenv("TERRIER_TEST_LEAK", "secret"); err != nil {
		t.Fatal(err)
	}
	leak, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // not close-on-exec, as of a careless parent
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(leak) }()
	env := []string{"A=1", "EMPTY=", "NOT_UTF8=\xff\xfe", "TEXT=two\nlines"}
	for _, level := range everyLevel {
		t.Run(level.String(), func(t *testing.T) {
			b := sandboxed(t, at(level), func(b *Config) {
				b.Dir = "sub"
				b.Limits = Limits{FileBytes: 1 << 20, OpenFiles: 100, Processes: 300}
			})
			if err := os.Mkdir(filepath.Join(b.Work, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := ChownWork(b.Work); err != nil {
				t.Fatal(err)
			}
			c := act(b, "print", "an arg")
			c.Env = env
			got := runJSON[selfReport](t, c)
			want := selfReport{
				Args: []string{"print", "an arg"}, Env: []string{"A=1", "EMPTY=", "NOT_UTF8=\ufffd\ufffd", "TEXT=two\nlines"},
				Dir: b.PathInside("/work/sub"), Host: got.Host, Status: got.Status, Open: []int{0, 1, 2}, Umask: 0o022, Leader: got.Leader,
				Limits: map[string]unix.Rlimit{"core": {}, "fsize": {Cur: 1 << 20, Max: 1 << 20}, "nofile": {Cur: 100, Max: 100}, "nproc": got.Limits["nproc"]},
			}
			if level == Full {
				want.Limits["nproc"] = unix.Rlimit{Cur: 300, Max: 300}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the program's own report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAProgramHasNoRights(t *testing.T) {
	got := runJSON[selfReport](t, act(sandboxed(t), "print"))
	user := "0 0 0 0"
	if asRoot() {
		user = "65534 65534 65534 65534"
	}
	none := "0000000000000000"
	for name, want := range map[string]string{
		"Uid": user, "Gid": user, "NoNewPrivs": "1", "Seccomp": "2", "NSpid": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	} {
		if got := got.Status[name]; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if asRoot() && got.Status["Groups"] != "" {
		t.Errorf("Groups: got %s, want none", got.Status["Groups"])
	}
	if got.Host != "run" {
		t.Errorf("host name: got %s, want run", got.Host)
	}
}

func TestStreamsAndExitCodes(t *testing.T) {
	for _, level := range append([]Level{None}, everyLevel...) {
		t.Run(level.String(), func(t *testing.T) {
			command := func(args ...string) Command { return Command{Path: probe, Args: args} }
			if level != None {
				b := sandboxed(t, at(level))
				command = func(args ...string) Command { return act(b, args...) }
			}
			c := command("echo")
			c.Stdin = strings.NewReader("hello")
			if stdout, stderr, exit := run(t, c); stdout != "out hello" || stderr != "err hello" || !exit.OK() {
				t.Errorf("got %q, %q, %v", stdout, stderr, exit)
			}
			if _, _, exit := run(t, command("exit", "42")); exit.Code != 42 || exit.Signal != 0 || exit.OK() {
				t.Errorf("got %+v, want code 42", exit)
			}
			if _, _, exit := run(t, command("exit", "0")); exit.Wall <= 0 || exit.CPU <= 0 || exit.MaxRSS < 1<<20 {
				t.Errorf("got %+v, want some time and memory used", exit)
			}
			missing := command()
			missing.Path = "/no/such/program"
			if _, err := Start(soon(t), missing); err == nil || !strings.Contains(err.Error(), "no such file") {
				t.Errorf("Start() = %v, want that there is no such file", err)
			}
		})
	}
}

// What is written to private places is nowhere on the host, and /work and
// Writable are the host's.
func TestPlaces(t *testing.T) {
	shared := workDir(t)
	b := sandboxed(t, func(b *Config) { b.Writable = []string{shared} })
	name := filepath.Base(b.Work)
	private := []string{"/tmp", "/home", "/dev/shm"}
	closed := []string{"/", "/etc", "/usr", "/bin", "/proc", "/dev"}
	if !asRoot() {
		closed = []string{"/usr", "/bin", "/proc"}
	}
	places := slices.Concat(private, closed, []string{"/work", shared})
	got := runJSON[map[string]string](t, act(b, append([]string{"scatter", name}, places...)...))
	for _, dir := range places {
		if got, want := got[dir] == "", !slices.Contains(closed, dir); got != want {
			t.Errorf("writing to %s: got through = %v, want %v", dir, got, want)
		}
	}
	for _, dir := range slices.Concat(private, closed) {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s on the host: got %v, want nothing there", dir, err)
		}
	}
	for _, dir := range []string{b.Work, shared} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); string(content) != "here" {
			t.Errorf("%s on the host: got %q, %v", dir, content, err)
		}
	}
}

// A link in the work directory, which a run may have left there, leads nowhere
// when the next sandbox is built.
func TestAHostileWorkDirectory(t *testing.T) {
	b := sandboxed(t, func(b *Config) { b.Dir = "sub" })
	victim := workDir(t)
	if err := os.Symlink(victim, filepath.Join(b.Work, "sub")); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(soon(t), act(b, "print")); err == nil {
		t.Error("the sandbox followed a link out of itself")
	}
}

func TestScratchIsBounded(t *testing.T) {
	const size = 4 << 20
	for _, dir := range []string{"/tmp", "/dev/shm", "/home"} {
		b := sandboxed(t, func(b *Config) { b.TmpBytes = size })
		if asRoot() && dir == "/home" {
			continue
		}
		got := runJSON[int64](t, act(b, "fill", filepath.Join(dir, "x"), strconv.Itoa(4*size)))
		if got > size || got < size/2 {
			t.Errorf("%s took %d bytes, want at most %d", dir, got, size)
		}
	}
}

func TestTheProgramReachesTheListener(t *testing.T) {
	for name, change := range columns {
		t.Run(name, func(t *testing.T) {
			c := act(sandboxed(t, change, func(b *Config) { b.Listen = true }), "dial")
			var out strings.Builder
			c.Env, c.Stdout, c.Stderr = []string{"A=1"}, &out, os.Stderr
			c.Listening = func(a net.Addr) []string { return []string{"ADDRESS=" + a.String()} }
			p, err := Start(soon(t), c)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := p.Listener().Accept()
			if err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			if _, err := io.WriteString(conn, "pong to "+line); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			if exit, err := p.Wait(); err != nil || !exit.OK() {
				t.Errorf("Wait() = %v, %v", exit, err)
			}
			if got, want := out.String(), "pong to ping\n"; got != want {
				t.Errorf("answer: got %q, want %q", got, want)
			}
			if _, err := p.Listener().Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept() after the end = %v, want %v", err, net.ErrClosed)
			}
		})
	}
}

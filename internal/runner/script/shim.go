package script

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner/socket"
)

// Socket is the environment variable that says where the supervisor of the run listens.
const Socket = "TERRIER_RUN"

// defaultSocket is where it does in a whole sandbox, for a program that was started
// without an environment.
const defaultSocket = "/work/run/" + socketName

const socketName = "engine"

// request is what the shim says first, beside its three standard streams. Texts are
// bytes, since JSON would change text that is not UTF-8.
type request struct {
	Args, Env [][]byte
	Dir       []byte // where the engine is to work, without links
	Backend   string // that the configuration there declares
}

// answer is what the supervisor says, one in a line.
type answer struct {
	Say  string  `json:",omitempty"` // for standard error
	Done *Result `json:",omitempty"`
}

// Result is how an engine ended.
type Result struct {
	Exit        int
	Interrupted bool // it ended early because the run is to end
}

// call is the shim: it has the supervisor start the engine, and ends as that did.
func call(name string, args []string) int {
	result, err := ask(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	if result.Interrupted {
		// A shell goes on with the next line unless the program that it waits for
		// ended by the interrupt, too.
		signal.Reset(syscall.SIGINT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		<-time.After(time.Second) // it comes a little later, unless it is ignored
		return 128 + int(syscall.SIGINT)
	}
	return result.Exit
}

func ask(args []string) (Result, error) {
	conn, err := connect()
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := send(conn, args); err != nil {
		return Result{}, fmt.Errorf("asking the supervisor of the run: %w", err)
	}
	go func() {
		<-asked
		_, _ = conn.Write([]byte{'\n'}) // as often as it may be said: once
		for range asked {
		}
	}()
	for dec := json.NewDecoder(bufio.NewReader(conn)); ; {
		var a answer
		if err := dec.Decode(&a); err != nil {
			return Result{}, fmt.Errorf("the supervisor of the run gave no answer")
		}
		if a.Say != "" {
			fmt.Fprintln(os.Stderr, a.Say)
		}
		if a.Done != nil {
			return *a.Done, nil
		}
	}
}

func connect() (*net.UnixConn, error) {
	path := os.Getenv(Socket)
	if path == "" {
		path = defaultSocket
	}
	conn, err := socket.Dial(path)
	if err != nil {
		return nil, fmt.Errorf("this program works in the script of a stack alone: %w", err)
	}
	return conn, nil
}

func send(conn *net.UnixConn, args []string) error {
	dir, err := directory(engine.ParseInvocation(args).Dir())
	if err != nil {
		return err
	}
	// What cannot be read the engine will complain about.
	backend, _ := engine.DeclaredBackend(os.DirFS(dir))
	body, err := json.Marshal(request{Args: bytesOf(args), Env: bytesOf(os.Environ()), Dir: []byte(dir), Backend: backend})
	if err != nil {
		return err
	}
	if _, _, err := conn.WriteMsgUnix([]byte{'\n'}, unix.UnixRights(0, 1, 2), nil); err != nil {
		return err
	}
	_, err = io.WriteString(conn, string(body)+"\n")
	return err
}

// directory is where the engine is to work.
func directory(chdir string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if filepath.IsAbs(chdir) {
		dir = chdir
	} else {
		dir = filepath.Join(dir, chdir)
	}
	return filepath.EvalSymlinks(dir)
}

func bytesOf(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, t := range texts {
		out[i] = []byte(t)
	}
	return out
}

func textsOf(texts [][]byte) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = string(t)
	}
	return out
}

package testkit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// startWithin is for programs that start, or end: the machine may be busy
// compiling.
const startWithin = Patience

// sharedServer is this process's API server, which has our kinds by the time it
// returns. It must stay referenced: a pipe that is collected is closed.
var sharedServer = sync.OnceValues(func() (*server, error) {
	s := &server{kubeconfig: os.Getenv("TERRIER_TEST_KUBECONFIG")}
	if s.kubeconfig == "" {
		var err error
		if s, err = startServer(); err != nil {
			return nil, err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the test server: %w", err)
	}
	return s, installKinds(config)
})

// server is a control plane in a child process, with a temporary directory that
// the child removes when it ends. One that another process started has only
// a kubeconfig.
type server struct {
	kubeconfig string
	command    *exec.Cmd
	// life is the child's standard input. The kernel closes this end when the
	// process dies, however it dies, and the child ends.
	life *os.File
}

func startServer() (*server, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "terrier-test-log-")
	if err != nil {
		return nil, fmt.Errorf("making a log for the test server: %w", err)
	}
	defer log.Close()
	if err := os.Remove(log.Name()); err != nil { // both sides have it open
		return nil, fmt.Errorf("removing the name of the test server's log: %w", err)
	}
	input, life, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to the test server: %w", err)
	}
	output, said, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe from the test server: %w", err), input.Close(), life.Close())
	}
	defer output.Close()
	// Only files, so that no goroutine of this process copies anything.
	command := exec.Command(binary, "control-plane", "--ephemeral", "--until-eof", "-o", "json")
	command.Stdin, command.Stdout, command.Stderr = input, said, log
	err = command.Start()
	_ = errors.Join(input.Close(), said.Close()) // the child has its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", binary, err), life.Close())
	}
	s := &server{command: command, life: life}
	if err := s.hearReady(output); err != nil {
		content := make([]byte, 4096)
		n, _ := log.ReadAt(content, 0)
		return nil, errors.Join(fmt.Errorf("waiting for %s: %w; it logged: %s", binary, err, content[:n]), s.stop())
	}
	return s, nil
}

func (s *server) hearReady(output *os.File) error {
	if err := output.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		return err
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		return err
	}
	var ready struct{ Kubeconfig string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	s.kubeconfig = ready.Kubeconfig
	return nil
}

// stop does what the death of this process would.
func (s *server) stop() error {
	return errors.Join(s.life.Close(), s.command.Wait())
}

var ourModule = regexp.MustCompile(`(?m)^module github\.com/terrier-iac/terrier$`)

// findBinary looks for bin/terrier in the repository that the test runs in.
func findBinary() (string, error) {
	dir, err := repository()
	if err != nil {
		return "", fmt.Errorf("finding bin/terrier: %w", err)
	}
	binary := filepath.Join(dir, "bin", "terrier")
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("tests use the real control plane, and it is not built: run make build: %w", err)
	}
	return binary, nil
}

// repository is the root of the repository that the test runs in.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if ourModule.Match(content) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the test does not run inside the repository")
		}
		dir = parent
	}
}

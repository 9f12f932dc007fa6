package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
)

// The environment of an agent.
const (
	EnvURL          = "TERRIER_RUN_URL"          // of the controller
	EnvAuthority    = "TERRIER_RUN_CA"           // certificates in PEM that the controller's is signed with
	EnvToken        = "TERRIER_RUN_TOKEN"        // the path of the token of this place
	EnvDir          = "TERRIER_RUN_DIR"          // an empty directory
	EnvProviders    = "TERRIER_RUN_PROVIDERS"    // a directory with a cache of providers, which may be missing
	EnvStack        = "TERRIER_RUN_STACK"        // the key of the run, by which one of several controllers is found
	EnvSurroundings = "TERRIER_RUN_SURROUNDINGS" // if not empty, runs have the volumes and the environment of this container
)

// Options are what an agent needs.
type Options struct {
	URL       string // of the controller: https://host:port
	Authority []byte // certificates in PEM that the controller's is signed with; the system's if there are none
	Token     string // the path of the token of this place, which is read for each request
	Dir       string // for the run, the archive and the proof; made if it is not there
	Providers string // a cache of providers, of which only what the order or a lock file names is used; may be empty, or missing
	Stack     string // the key of the run; says which of several controllers answers, and nothing else

	// Surroundings gives runs what the container of this program was given: volumes
	// that are mounted, and variables that neither the image nor the cluster needs.
	Surroundings bool

	Supervisor string // the program of the supervisor
	Log        *slog.Logger
}

// Environ is the environment from which Program makes the same options.
func (o Options) Environ() []string {
	env := []string{EnvURL + "=" + o.URL, EnvAuthority + "=" + string(o.Authority), EnvToken + "=" + o.Token, EnvDir + "=" + o.Dir, EnvProviders + "=" + o.Providers, EnvStack + "=" + o.Stack}
	if o.Surroundings {
		env = append(env, EnvSurroundings+"=true")
	}
	return env
}

// Argument is the one argument of terrier-runner that makes it an agent.
const Argument = "pod"

// lastWords is where a cluster reads why a container ended.
const lastWords = "/dev/termination-log"

// Program is the main function of an agent, but for sandbox.Main. It returns the exit
// code. Both signals mean the same, however often they come: stop politely.
func Program(log io.Writer) int {
	debug.SetMemoryLimit(OwnMemory / 2)
	err := failpoint.Arm(os.Getenv(failpoint.Env))
	code := wire.ExitFailed
	if err == nil {
		stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer cancel()
		code, err = Run(stop, fromEnvironment(log))
	}
	if err == nil {
		return code
	}
	fmt.Fprintln(log, "terrier-runner:", err)
	// It is there in a container only, and made before the program starts.
	if f, err := os.OpenFile(lastWords, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		_, _ = fmt.Fprintln(f, err)
		_ = f.Close()
	}
	return code
}

func fromEnvironment(log io.Writer) Options {
	self, err := os.Executable()
	if err != nil {
		self = filepath.Clean(os.Args[0])
	}
	return Options{
		URL: os.Getenv(EnvURL), Authority: []byte(os.Getenv(EnvAuthority)), Token: os.Getenv(EnvToken), Dir: os.Getenv(EnvDir), Providers: os.Getenv(EnvProviders),
		Stack:        os.Getenv(EnvStack),
		Surroundings: os.Getenv(EnvSurroundings) != "", Supervisor: self, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// sharing is the platform that tests share. It is started by the first that
// needs it.
type sharing struct {
	mu  sync.Mutex
	dir string
	*testkit.Platform
	err error
}

var shared sharing

// platform returns the platform that tests share.
func platform(t *testing.T) *testkit.Platform {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.Platform == nil && shared.err == nil {
		shared.start(testkit.Repository(t))
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Platform
}

func (s *sharing) start(repository string) {
	if s.dir, s.err = os.MkdirTemp("", "terrier-e2e-"); s.err == nil {
		s.Platform, s.err = testkit.NewPlatform(testkit.PlatformOptions{Dir: s.dir, Flags: []string{"--backend-plugin", "shelf=" + filepath.Join(repository, "internal/runner/testdata/shelf")}})
	}
}

func (s *sharing) stop() error {
	if s.Platform == nil {
		return os.RemoveAll(s.dir)
	}
	return errors.Join(s.Close(), os.RemoveAll(s.dir))
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients of tests
	flag.Parse()
	// Tests wait for most of their time, so more of them run at once than there are cores.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "ending the shared platform:", err)
		code = 1
	}
	os.Exit(code)
}

// cluster gives the test a namespace on the shared platform.
func cluster(t *testing.T) *testkit.Cluster {
	t.Helper()
	return platform(t).Cluster(t)
}

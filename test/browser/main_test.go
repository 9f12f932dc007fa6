package browser

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// shared is the platform that tests share; the first that needs it starts it.
var shared struct {
	sync.Mutex
	dir string
	*testkit.Platform
}

func platform(t *testing.T) *testkit.Platform {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.Platform == nil {
		dir, err := os.MkdirTemp("", "terrier-browser-")
		if err != nil {
			t.Fatal(err)
		}
		shared.dir = dir
		if shared.Platform, err = testkit.NewPlatform(testkit.PlatformOptions{Dir: dir, Flags: []string{"--allow-break-the-glass"}}); err != nil {
			t.Fatal(err)
		}
	}
	return shared.Platform
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients of tests
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	var err error
	if browser.dir != "" {
		err = os.RemoveAll(browser.dir)
	}
	if shared.Platform != nil {
		err = errors.Join(err, shared.Close())
	}
	if shared.dir != "" {
		err = errors.Join(err, os.RemoveAll(shared.dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ending what tests share:", err)
		code = 1
	}
	os.Exit(code)
}

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	if !Running() {
		fmt.Println("no test runs here without a cluster: make test-cluster starts one")
		return
	}
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// pushed is the image of the probe, pushed once.
var pushed = struct {
	sync.Mutex
	image string
}{}

// probe is the image that the pods of these tests run.
func probe(t *testing.T) string {
	t.Helper()
	pushed.Lock()
	defer pushed.Unlock()
	if pushed.image == "" {
		pushed.image = PushProgram(t, filepath.Join("..", "..", "bin", "cluster-probe"))
	}
	return pushed.image
}

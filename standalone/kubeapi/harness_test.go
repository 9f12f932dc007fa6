package kubeapi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// childDir makes the test binary a control plane on that directory, so that a
// test can kill one without a second binary that links Kubernetes.
const childDir = "TERRIER_TEST_CHILD_DIR"

// childTalks has that process log everything.
const childTalks = "TERRIER_TEST_CHILD_TALKS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	level := slog.LevelInfo
	if os.Getenv(childTalks) != "" {
		level = slog.LevelDebug - 4
	}
	server, err := Start(ctx, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))})
	if err == nil {
		fmt.Println("ready")
		err = server.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// openTempDir is a temporary directory that other users can look into, so that
// only the data directory inside it can be what keeps them out.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubeapi-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startServer starts a server that ends with the test, or when stop is called.
func startServer(t *testing.T, o Options) (server *Server, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server, err := Start(ctx, o)
	if err != nil {
		cancel()
		t.Fatalf("Start() = %v", err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := server.Wait(); err != nil {
			t.Errorf("Wait() = %v, want nil after a stop", err)
		}
	})
	t.Cleanup(stop)
	return server, stop
}

func ownerConfig(t *testing.T, dir string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func ownerClient(t *testing.T, dir string) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(ownerConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually polls check until it returns nil.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// recorder keeps everything that is logged at any level.
type recorder struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.content.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.content.String()
}

func (r *recorder) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
}

package archtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run starts a supervisor, so the supervisor must start in milliseconds:
// every package that it links is initialised each time.
func TestRunnerLinksLittle(t *testing.T) {
	root := repositoryRoot(t)
	if _, err := os.Stat(filepath.Join(root, "cmd", "terrier-runner")); err != nil {
		t.Fatal(err)
	}
	heavy := []string{
		"k8s.io", "sigs.k8s.io", "github.com/fluxcd", "github.com/gin-gonic", "github.com/go-git", "github.com/google/go-containerregistry",
		"github.com/minio", "github.com/prometheus", "github.com/spf13/cobra", "github.com/Masterminds", module + "/internal/app",
	}
	out := json.NewDecoder(strings.NewReader(output(t, root, "go", "list", "-deps", "-json=ImportPath", "./cmd/terrier-runner")))
	for out.More() {
		var p struct{ ImportPath string }
		if err := out.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if under(p.ImportPath, heavy...) {
			t.Errorf("cmd/terrier-runner links %s\n\tway out: see `go mod why -m` or split the package that pulls it in", p.ImportPath)
		}
	}
}

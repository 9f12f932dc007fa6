package packages

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/registry/origin"
)

// The examples of docs/registry-tags.md can be used as they are.
func TestExamplesOfTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/registry-tags.md")
	if err != nil {
		t.Fatal(err)
	}
	var object sourcev1.GitRepository
	var repositories []origin.Repository
	blocks := strings.Split(string(page), "```yaml\n")
	for _, block := range blocks[1:] {
		text, _, _ := strings.Cut(block, "```")
		switch {
		case strings.HasPrefix(text, "apiVersion:"):
			if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			repositories = append(repositories, (&declared{}).repository(Cluster{}, &object))
		case strings.HasPrefix(text, annotations):
			more := object.DeepCopy()
			if err := yaml.UnmarshalStrict([]byte(text), &more.Annotations); err != nil {
				t.Fatal(err)
			}
			repositories = append(repositories, (&declared{}).repository(Cluster{}, more))
		default:
			file := filepath.Join(t.TempDir(), "repositories.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := origin.OpenFile(origin.FileOptions{Path: file, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			of, err := f.Repositories(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			repositories = append(repositories, of...)
		}
	}
	if len(repositories) != 3 {
		t.Errorf("the document has %d examples, want 3", len(repositories))
	}
	for _, r := range repositories {
		if err := r.Check(); err != nil || r.Namespace != "network" {
			t.Errorf("the example %s: %v", r.Key, err)
		}
	}
}

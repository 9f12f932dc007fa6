package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// guideDir holds the nine templates of Tenant Operator's guide, byte for byte.
const guideDir = "../../internal/tenant/testdata/seed"

// A1: all nine templates are admitted as they are.
func TestA1GuideIsAdmitted(t *testing.T) {
	c := cluster(t)
	files, err := filepath.Glob(guideDir + "/*.yaml")
	if err != nil || len(files) != 9 {
		t.Fatalf("there are %d templates, %v; want the guide's nine", len(files), err)
	}
	for _, file := range files {
		if out := c.Kubectl(t, "apply", "--dry-run=server", "--namespace", "default", "-f", file); !strings.Contains(out, "created (server dry run)") {
			t.Errorf("%s: %s", filepath.Base(file), out)
		}
	}
}

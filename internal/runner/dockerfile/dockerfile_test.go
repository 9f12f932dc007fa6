package dockerfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCodeIsCopied(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "context")
	for name, mode := range map[string]os.FileMode{"Dockerfile": 0o644, "terraform/apply.sh": 0o755} {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("of "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	if code := Program([]string{ArgumentContext, from, to}, &log); code != 0 {
		t.Fatalf("ended with %d: %s", code, log.String())
	}
	for name, executable := range map[string]bool{"Dockerfile": false, "terraform/apply.sh": true} {
		text, err := os.ReadFile(filepath.Join(to, name))
		info, err2 := os.Stat(filepath.Join(to, name))
		if err != nil || err2 != nil || string(text) != "of "+name || (info.Mode()&0o100 != 0) != executable {
			t.Errorf("%s is %q, %v, %v", name, text, err, err2)
		}
	}
}

func TestTheDigestIsSaid(t *testing.T) {
	for name, tt := range map[string]struct {
		metadata, want, complaint string
	}{
		"of BuildKit": {`{"containerimage.config.digest": "sha256:0", "containerimage.digest": "sha256:1", "containerimage.descriptor": {"size": 1}}`, "sha256:1", ""},
		"none":        {`{"containerimage.config.digest": "sha256:0"}`, "", "have no containerimage.digest"},
		"no JSON":     {`what`, "", "reading what was built"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			metadata, to := filepath.Join(dir, "metadata.json"), filepath.Join(dir, "termination-log")
			for path, text := range map[string]string{metadata: tt.metadata, to: ""} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			code := Program([]string{ArgumentResult, metadata, to}, &log)
			got, err := os.ReadFile(to)
			if err != nil || string(got) != tt.want || (code == 0) != (tt.complaint == "") || !strings.Contains(log.String(), tt.complaint) {
				t.Errorf("said %q, %v, and ended with %d: %s", got, err, code, log.String())
			}
		})
	}
}

func TestPathsAreMissing(t *testing.T) {
	var log bytes.Buffer
	if code := Program([]string{ArgumentResult}, &log); code != 1 || !strings.Contains(log.String(), "needs two paths") {
		t.Errorf("ended with %d: %s", code, log.String())
	}
}

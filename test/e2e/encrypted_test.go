package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/encryption"
)

// encrypted is a manifest whose stack asks for its state to be encrypted.
func encrypted(manifest string) string {
	return strings.Replace(manifest, "metadata: {", "metadata: {annotations: {"+encryption.Annotation+": "+encryption.Platform+"}, ", 1)
}

// KY-08: a value that only a state holds is nowhere in what is stored of an encrypted one, and
// users see and change that state as any other.
func TestAnEncryptedStateShowsNothing(t *testing.T) {
	p, c, _ := alone(t)
	const text = "what only this state holds"
	canary := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	module := "resource \"terraform_data\" \"kept\" {\n  input = sensitive(sha256(\"" + text + "\"))\n}\n"
	place := p.Shared(t)
	custom := "\nbackendConfig:\n  customConfiguration: |\n    backend \"local\" {\n      path = \"" + place + "/state\"\n    }"
	c.Apply(t, encrypted(inline("stack", kept, module)))
	c.Apply(t, encrypted(inline("own", kept+custom, module)))
	c.AwaitReady(t, "stack")
	c.AwaitReady(t, "own")
	if raw := unpacked(t, packed(t, c, "stack")); !encryption.Encrypted(raw) || bytes.Contains(raw, []byte(canary)) {
		t.Errorf("the Secret holds %s", raw)
	}
	if raw, err := os.ReadFile(filepath.Join(place, "state")); err != nil || !bytes.Contains(raw, []byte(`"encrypted_data"`)) || bytes.Contains(raw, []byte(canary)) {
		t.Errorf("the backend of the stack's own holds %s, %v", raw, err)
	}
	noRuns(t, p)
	if err := filepath.WalkDir(p.Dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(canary)) {
			t.Errorf("the value is in %s", path)
		}
		return ignoreGone(err)
	}); err != nil {
		t.Fatal(err)
	}

	// The value was there to be found, and users who may read the state find it.
	file := filepath.Join(t.TempDir(), "state")
	c.Terrier(t, "state", "pull", "stack", "-o", file)
	pulled, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(pulled, []byte(canary)) {
		t.Errorf("terrier state pull wrote %s, %v", pulled, err)
	}
	if shown := c.Terrier(t, "state", "show", "stack", "--show-secrets"); !strings.Contains(shown, canary) {
		t.Errorf("terrier state show says %s", shown)
	}
	if shown := c.Terrier(t, "state", "show", "stack"); strings.Contains(shown, canary) || !strings.Contains(shown, "terraform_data.kept") {
		t.Errorf("terrier state show says %s, want the resource and no value", shown)
	}
	if listed := c.Terrier(t, "state", "list", "stack"); !strings.Contains(listed, "terraform_data.kept") {
		t.Errorf("terrier state list says %s", listed)
	}
	before := serials(t, c, "stack")[0]
	c.Terrier(t, "state", "push", "stack", file, "--force", "--yes")
	if raw := unpacked(t, packed(t, c, "stack")); !encryption.Encrypted(raw) || bytes.Contains(raw, []byte(canary)) {
		t.Errorf("after a push the Secret holds %s", raw)
	}
	c.Terrier(t, "replan", "stack", "--wait")
	c.AwaitReady(t, "stack")
	c.Terrier(t, "state", "rollback", "stack", before, "--yes")

	// It ends, and begins again, without a change of a resource.
	for _, step := range []struct {
		annotation string
		encrypted  bool
	}{{"null", false}, {`"` + encryption.Platform + `"`, true}} {
		for _, name := range []string{"stack", "own"} {
			c.Patch(t, name, `{"metadata":{"annotations":{"`+encryption.Annotation+`":`+step.annotation+`}}}`)
			c.Await(t, name, func(s *v1alpha2.Terraform) error {
				raw, err := os.ReadFile(filepath.Join(place, "state"))
				if name == "stack" {
					raw, err = unpacked(t, packed(t, c, "stack")), nil
				}
				if err == nil && bytes.Contains(raw, []byte(canary)) == step.encrypted {
					err = errNot("stored as the stack asks")
				}
				return err
			})
			if s := c.AwaitReady(t, name); s.Status.Terrier.Phase == "DriftFound" {
				t.Errorf("%s: %s", name, message(s))
			}
		}
	}
	// A value that means nothing is refused, and decrypts nothing.
	c.Patch(t, "stack", `{"metadata":{"annotations":{"`+encryption.Annotation+`":"mine"}}}`)
	if s := c.AwaitReason(t, "stack", "SpecInvalid"); !strings.Contains(message(s), encryption.Annotation) || !strings.Contains(message(s), encryption.Platform) {
		t.Errorf("the message is %q", message(s))
	}
	if raw := unpacked(t, packed(t, c, "stack")); bytes.Contains(raw, []byte(canary)) {
		t.Error("a value that means nothing decrypted the state")
	}
}

// unpacked is the content of a Secret of a state.
func unpacked(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

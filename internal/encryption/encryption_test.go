package encryption

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

const canary = "a-value-of-the-state-alone"

func stateOf(serial int) []byte {
	return fmt.Appendf(nil, `{"version":4,"terraform_version":"1.12.6","serial":%d,"lineage":"0b1c0f6e-4c02-4a35-b9f5-6c7a1d5d8d10","outputs":{"o":{"value":%q,"type":"string"}},"resources":[],"check_results":null}
`, serial, canary)
}

func keyOf(id string) Key { return Key{ID: id, Bytes: bytes.Repeat([]byte(id[:1]), KeyBytes)} }

func TestEncrypt(t *testing.T) {
	state, one, two := stateOf(7), keyOf("one"), keyOf("two")
	doc, err := Encrypt(state, one)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(doc, []byte(canary)) || !Encrypted(doc) || KeyOf(doc) != "one" {
		t.Errorf("Encrypt() = %s", doc)
	}
	var legible struct {
		Serial  int
		Lineage string
	}
	if err := json.Unmarshal(doc, &legible); err != nil || legible.Serial != 7 || legible.Lineage != "0b1c0f6e-4c02-4a35-b9f5-6c7a1d5d8d10" {
		t.Errorf("the identity of the state reads %+v, %v", legible, err)
	}
	if got, id, err := Decrypt(doc, two, one); err != nil || !bytes.Equal(got, state) || id != "one" {
		t.Errorf("Decrypt() = %s, %q, %v; want the state, byte by byte", got, id, err)
	}
	for name, tt := range map[string]struct {
		doc  []byte
		keys []Key
	}{
		"another key":            {doc, []Key{two}},
		"no key":                 {doc, nil},
		"a key that is cut off":  {doc, []Key{{ID: "one", Bytes: one.Bytes[:16]}}},
		"another serial outside": {bytes.Replace(doc, []byte(`"serial":7`), []byte(`"serial":8`), 1), []Key{one}},
		"a form of the future":   {bytes.Replace(doc, []byte(`"v0"`), []byte(`"v1"`), 1), []Key{one}},
		"a plain state":          {state, []Key{one}},
	} {
		if got, _, err := Decrypt(tt.doc, tt.keys...); fault.Reason(err, "") != ReasonKey || got != nil && name != "another serial outside" {
			t.Errorf("%s: %v, want %s", name, err, ReasonKey)
		}
	}
}

// A state that the engine encrypted with a key of the module's own is not taken for one of the
// platform.
func TestWhatIsNotEncryptedByThePlatform(t *testing.T) {
	for _, b := range []string{
		string(stateOf(1)), "", "{", `{"meta":{"key_provider.pbkdf2.mine":"e30="},"encrypted_data":"AA==","encryption_version":"v0"}`,
		`{"serial":1,"note":"\"encrypted_data\" key_provider.external.terrier"}`,
	} {
		if Encrypted([]byte(b)) {
			t.Errorf("%q is taken for an encrypted state", b)
		}
	}
}

// Each place, and each key of records, has a key of its own.
func TestKeysAreDerived(t *testing.T) {
	seen := map[string]string{}
	for _, secret := range []string{strings.Repeat("a", KeyBytes), strings.Repeat("b", KeyBytes)} {
		root, err := NewRoot([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range []string{OfSecret("a/tfstate-default-x"), OfSecret("b/tfstate-default-x"), OfStack("terraform.infra.contrib.fluxcd.io", "a", "x"), OfStack("terraform.alustan.io", "a", "x")} {
			k, err := root.Key("id", place)
			again, err2 := root.Key("id", place)
			if err != nil || err2 != nil || !bytes.Equal(k.Bytes, again.Bytes) || len(k.Bytes) != KeyBytes || bytes.Contains(k.Bytes, root[:8]) {
				t.Errorf("Key(%s) = %x, %v", place, k.Bytes, err)
			}
			if other, taken := seen[string(k.Bytes)]; taken {
				t.Errorf("%s has the key of %s", place, other)
			}
			seen[string(k.Bytes)] = place
		}
	}
}

func TestKeysDoNotShow(t *testing.T) {
	k := Key{ID: "one", Bytes: []byte(canary)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, k) + fmt.Sprintf(verb, []Key{k}); strings.Contains(got, canary) || strings.Contains(got, fmt.Sprintf("%x", canary)) {
			t.Errorf("%s shows %s", verb, got)
		}
	}
}

// The newest key encrypts, each known one decrypts, and a place has keys of its own.
func TestCipher(t *testing.T) {
	ids := []string{"one"}
	c := Cipher{Keys: func(_ context.Context, place, id string) (keys []Key, err error) {
		for _, known := range ids {
			if id == "" || id == known {
				keys = append(keys, Key{ID: known, Bytes: bytes.Repeat([]byte{known[0] ^ byte(len(place))}, KeyBytes)})
			}
		}
		return keys, nil
	}}
	state := stateOf(1)
	doc, err := c.Encrypt(t.Context(), OfSecret("a/tfstate"), state)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, place string, newest bool, reason string) {
		t.Helper()
		got, isNewest, err := c.Decrypt(t.Context(), place, doc)
		if fault.Reason(err, "") != reason || isNewest != newest || reason == "" && !bytes.Equal(got, state) {
			t.Errorf("%s: newest %v, %v; want newest %v, reason %q", what, isNewest, err, newest, reason)
		}
	}
	check("at once", OfSecret("a/tfstate"), true, "")
	check("in another place", OfSecret("other/tfstate"), false, ReasonKey)
	ids = []string{"two", "one"}
	check("after a rotation", OfSecret("a/tfstate"), false, "")
	ids = []string{"two"}
	check("without its key", OfSecret("a/tfstate"), false, ReasonKey)
}

// The plain engine reads what Terrier wrote, and Terrier what the plain engine wrote.
func TestTheEngineReadsIt(t *testing.T) {
	bin, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	dir, k := t.TempDir(), keyOf("one")
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := KeyFile(k)
	if err != nil {
		t.Fatal(err)
	}
	other, err := KeyFile(keyOf("two"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := ConfigWithFiles(filepath.Join(dir, "key.json"), filepath.Join(dir, "other.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Encrypt(stateOf(7), k)
	if err != nil {
		t.Fatal(err)
	}
	write("key.json", answer)
	write("other.json", other)
	write("cli.tfrc", []byte("disable_checkpoint = true\n"))
	write("main.tf", []byte("resource \"terraform_data\" \"x\" {\n  input = \"more-"+canary+"\"\n}\noutput \"o\" {\n  value = \""+canary+"\"\n}\n"))
	write("terraform.tfstate", doc)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir, cmd.Env = dir, []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "cli.tfrc"), "HOME=" + dir, "TF_IN_AUTOMATION=1", "PATH=" + os.Getenv("PATH"), "TF_ENCRYPTION=" + config}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tofu %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("init", "-no-color")
	if out := run("output", "-raw", "o"); !strings.Contains(out, canary) {
		t.Errorf("the engine reads %q of the encrypted state", out)
	}
	if doc, err = Encrypt(stateOf(8), keyOf("two")); err != nil {
		t.Fatal(err)
	}
	write("terraform.tfstate", doc)
	if out := run("output", "-raw", "o"); !strings.Contains(out, canary) {
		t.Errorf("the engine reads %q of the state that another key encrypted", out)
	}
	run("apply", "-auto-approve", "-no-color")
	written, err := os.ReadFile(filepath.Join(dir, "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	state, id, err := Decrypt(written, k)
	if err != nil || id != "one" || KeyOf(written) != "one" || !bytes.Contains(state, []byte("more-"+canary)) || bytes.Contains(written, []byte(canary)) {
		t.Errorf("the engine wrote %s, which is decrypted to %s, %v", written, state, err)
	}
}

package provision_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

const canary = "a-value-that-only-the-stack-may-read"

func keyOf(id string) encryption.Key {
	return encryption.Key{ID: id, Bytes: bytes.Repeat([]byte(id[:1]), encryption.KeyBytes)}
}

// opened is the state that an engine encrypted; nil if none of the keys opens it.
func opened(raw []byte, keys ...encryption.Key) []byte {
	sealed, err := encryption.Payload(raw)
	if err != nil {
		return nil
	}
	for _, k := range keys {
		if state, err := encryption.Open(sealed, k); err == nil {
			return state
		}
	}
	return nil
}

// KY-08 in a bucket: the value is in no object that the engine ever wrote, the encryption is
// taken over from a plain state, follows a rotation and ends, each time without a change of a
// resource, and each time the next run reads the state.
func TestAnEncryptedStateInABucket(t *testing.T) {
	const object = "store/team/network/terraform.tfstate"
	at := storage.NewS3(t)
	s, _ := stackOn(t, runner.Backend{Name: "aws", Settings: map[string]string{"s3": "store", "region": "eu-central-1", "endpoint": at.URL}}, awsIdentity)
	s.Job.Files[0].Content = []byte("resource \"terraform_data\" \"a\" {\n  input = \"" + canary + "\"\n}\noutput \"o\" {\n  value = terraform_data.a.output\n}\n")
	one, two := keyOf("one"), keyOf("two")
	with := func(e runner.Encryption) func(*runner.Job) { return func(j *runner.Job) { j.Encryption = &e } }
	check := func(what string, k *encryption.Key, facts *stack.StateFacts) {
		t.Helper()
		raw := at.Object(t, object)
		if plain := bytes.Contains(raw, []byte(canary)); plain != (k == nil) || k != nil && !bytes.Contains(opened(raw, *k), []byte(canary)) {
			t.Errorf("%s: the bucket has %s", what, raw)
		}
		if facts != nil && (facts.Encrypted != (k != nil) || facts.Resources != 1) {
			t.Errorf("%s: the report says %+v", what, facts)
		}
	}
	quiet := func(what string, e runner.Encryption, kind stack.RunKind) runnertest.Done {
		t.Helper()
		d := s.Must(kind, with(e))
		if !d.Changes.None() {
			t.Errorf("%s: found %v\n%s", what, d.Changes, d.Log)
		}
		return d
	}

	// From the first apply on.
	begin := runner.Encryption{Keys: []encryption.Key{one}, Plain: true}
	planned := s.Must(stack.PlanRun, with(begin))
	applied := s.Must(stack.ApplyRun, with(begin), runnertest.Saved(planned))
	check("after the first apply", &one, applied.Foreign)
	s.Job.Backend.Expected = true
	if d := quiet("a check", runner.Encryption{Keys: []encryption.Key{one}}, stack.CheckRun); len(d.Steps) != 1 || len(d.Diagnostics) != 0 {
		t.Errorf("a quiet check took the steps %v, and said %v", d.Steps, d.Diagnostics)
	}
	// A rotation.
	check("after a rotation", &two, quiet("a check with a newer key", runner.Encryption{Keys: []encryption.Key{two, one}}, stack.CheckRun).Foreign)
	if d := quiet("the next check", runner.Encryption{Keys: []encryption.Key{two, one}}, stack.CheckRun); len(d.Steps) != 1 {
		t.Errorf("a quiet check after a rotation took the steps %v", d.Steps)
	}
	quiet("a plan without the older key", runner.Encryption{Keys: []encryption.Key{two}}, stack.PlanRun)
	// The end of it, and a takeover.
	check("at the end", nil, quiet("a plan that ends it", runner.Encryption{Keys: []encryption.Key{two}, End: true}, stack.PlanRun).Foreign)
	s.Must(stack.CheckRun)
	check("taken over", &two, quiet("a check that takes it over", runner.Encryption{Keys: []encryption.Key{two}, Plain: true}, stack.CheckRun).Foreign)

	// A state that was replaced by a plain one is not taken for it.
	sealed := at.Object(t, object)
	at.Put(t, object, opened(sealed, two))
	if d := s.Finish(s.Start(stack.PlanRun, with(runner.Encryption{Keys: []encryption.Key{two}}))); d.Outcome != stack.Failed || !strings.Contains(d.Message, "unencrypted") {
		t.Errorf("a plan of a plain state in place of an encrypted one ended %s: %s", d.Outcome, d.Message)
	}
	at.Put(t, object, sealed)
	// Nor does a run of another stack read it.
	if d := s.Finish(s.Start(stack.PlanRun, with(runner.Encryption{Keys: []encryption.Key{one}, Plain: true}))); d.Outcome != stack.Failed {
		t.Errorf("a plan with the key of another stack ended %s", d.Outcome)
	}
	if d := s.Must(stack.DestroyRun, with(runner.Encryption{Keys: []encryption.Key{two}})); d.Foreign == nil || d.Foreign.Resources != 0 {
		t.Errorf("the destroy left %+v\n%s", d.Foreign, d.Log)
	}
	if raw := at.Object(t, object); bytes.Contains(raw, []byte(canary)) {
		t.Errorf("after the destroy the bucket has %s", raw)
	}
}

// An identity that may not write the state leaves it to a run that may.
func TestEncryptionWithoutTheRightToWrite(t *testing.T) {
	const object = "store/team/network/terraform.tfstate"
	at := storage.NewS3(t)
	s, _ := stackOn(t, runner.Backend{Name: "aws", Settings: map[string]string{"s3": "store", "region": "eu-central-1", "endpoint": at.URL}}, awsIdentity)
	planned := s.Must(stack.PlanRun)
	s.Must(stack.ApplyRun, runnertest.Saved(planned))
	s.Job.Backend.Expected = true
	before := at.Object(t, object)
	at.Deny("/store/team/network/terraform.tfstate.tflock")
	one := runner.Encryption{Keys: []encryption.Key{keyOf("one")}, Plain: true}
	d := s.Must(stack.CheckRun, func(j *runner.Job) { j.Encryption, j.Options.NoLock = &one, true })
	if !d.Changes.None() || !runnertest.Has("The next run that may write it does so", d.Log) {
		t.Errorf("the check found %v\n%s", d.Changes, d.Log)
	}
	if !bytes.Equal(at.Object(t, object), before) {
		t.Error("the state is another one")
	}
}

// The module sees neither a key nor anything that it could decrypt a stored state with later.
func TestTheModuleSeesNoKey(t *testing.T) {
	at := storage.NewS3(t)
	s, _ := stackOn(t, runner.Backend{Name: "aws", Settings: map[string]string{"s3": "store", "region": "eu-central-1", "endpoint": at.URL}}, awsIdentity)
	seen := t.TempDir()
	if err := os.Chmod(seen, 0o777); err != nil {
		t.Fatal(err)
	}
	s.Allow(seen)
	s.Job.Files[0].Content = fmt.Appendf(nil, `resource "terraform_data" "a" {
  provisioner "local-exec" {
    command = "env > %[1]s/env; find /work /tmp /home -type f -size -64k -exec cat {} + > %[1]s/files 2>/dev/null; cat /proc/*/environ > %[1]s/environs 2>/dev/null; true"
  }
}
`, seen)
	k := encryption.Key{ID: "one", Bytes: []byte("0123456789abcdefghijklmnopqrstuv")}
	e := runner.Encryption{Keys: []encryption.Key{k}, Plain: true}
	with := func(j *runner.Job) { j.Encryption = &e }
	s.Must(stack.ApplyRun, with, runnertest.Saved(s.Must(stack.PlanRun, with)))
	spelt, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"env", "files", "environs"} {
		b, err := os.ReadFile(filepath.Join(seen, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{string(k.Bytes), base64.StdEncoding.EncodeToString(k.Bytes), string(spelt)} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("the module finds the key in %s", name)
			}
		}
	}
	if env, err := os.ReadFile(filepath.Join(seen, "env")); err != nil || !bytes.Contains(env, []byte(encryption.Variable+"=")) {
		t.Errorf("the environment is %s, %v; want the engine to be told to ask", env, err)
	}
}

// The same in a database.
func TestAnEncryptedStateInPostgreSQL(t *testing.T) {
	db := database.StartPostgreSQL(t)
	s, _ := stackOn(t, runner.Backend{Name: "pg"}, map[string]string{
		"PG_CONN_STR": fmt.Sprintf("postgres://admin@/%s?host=%s&port=%d&sslmode=disable", database.Database, db.Socket, db.Port),
	})
	s.Allow(db.Socket)
	e := runner.Encryption{Keys: []encryption.Key{keyOf("one")}, Plain: true}
	s.Job.Encryption = &e
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	e.Plain, s.Job.Backend.Expected = false, true
	if d := s.Must(stack.CheckRun); len(d.Steps) != 1 || !d.Changes.None() {
		t.Errorf("a quiet check took the steps %v and found %v", d.Steps, d.Changes)
	}
	db.Exec(t, `DO $$ BEGIN IF EXISTS (SELECT 1 FROM "team/network".states WHERE data LIKE '%kept%' OR data NOT LIKE '%encrypted_data%') THEN RAISE EXCEPTION 'the state is in clear'; END IF; END $$`)
}

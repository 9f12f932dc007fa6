package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// bucketEngine is an engine of a user, in a directory whose backend is an object of a bucket.
type bucketEngine struct {
	s   aws
	dir string
}

func newBucketEngine(t *testing.T, s aws) bucketEngine { return bucketEngine{s, t.TempDir()} }

// at makes a key the backend, and runs a command of the engine.
func (e bucketEngine) at(t *testing.T, key string, args ...string) string {
	t.Helper()
	write(t, e.dir, "main.tf", fmt.Sprintf(`terraform {
  backend "s3" {
    bucket                      = "store"
    region                      = "eu-central-1"
    key                         = %q
    endpoints                   = { s3 = %q }
    use_lockfile                = true
    use_path_style              = true
    skip_credentials_validation = true
    skip_metadata_api_check     = true
    skip_region_validation      = true
    skip_requesting_account_id  = true
    skip_s3_checksum            = true
  }
}
`, key, e.s.URL))
	return testkit.Engine(t, e.dir, []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret"}, args...)
}

// move moves a state as the message of a stack says: with the backend of before, and then
// with that of now.
func (e bucketEngine) move(t *testing.T, from, to string) {
	t.Helper()
	e.at(t, from, "init", "-input=false", "-reconfigure")
	write(t, e.dir, "old.tfstate", e.at(t, from, "state", "pull"))
	e.at(t, to, "init", "-input=false", "-reconfigure")
	e.at(t, to, "state", "push", "old.tfstate")
}

// A change of the key of a state, or a bucket that was emptied, creates nothing a second time.
// The stack is held until the state is there, or a user says that it begins empty.
func TestAStateThatIsNotWhereItWas(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	engine := newBucketEngine(t, s)
	at := func(key string) {
		t.Helper()
		c.Apply(t, s.stack("stack", "", "key", key).manifest(t, things(w, "x", "a")))
	}
	held := func(says ...string) {
		t.Helper()
		c.AwaitReason(t, "stack", "StateMissing")
		c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
			for _, part := range append(says, "1 resource", "terrier state accept stack --reason") {
				if !strings.Contains(message(s), part) {
					return errNot(part + " in " + message(s))
				}
			}
			return nil
		})
	}
	at("one")
	c.AwaitReady(t, "stack")

	// Move it with pull and push.
	at("two")
	held(`key "one"`, `key "two"`, "tofu init && tofu state pull > old.tfstate", "tofu init && tofu state push old.tfstate", "terrier replan stack")
	engine.move(t, "one", "two")
	c.Terrier(t, "replan", "stack")
	c.AwaitReady(t, "stack")

	// Or let the engine copy it.
	at("three")
	held(`key "three"`)
	engine.at(t, "two", "init", "-input=false", "-reconfigure")
	engine.at(t, "three", "init", "-input=false", "-migrate-state", "-force-copy")
	c.Terrier(t, "replan", "stack")
	c.AwaitReady(t, "stack")

	// Or go back.
	at("four")
	held(`key "four"`)
	at("three")
	c.AwaitReady(t, "stack")
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("after three moves a was created %d times, want once", n)
	}

	// The same place may lose it. A destroy that finds nothing is held, too.
	state := s.Object(t, "store/three")
	s.Delete(t, "store/three")
	c.Terrier(t, "replan", "stack")
	held(`key "three"`, "Restore the state there")
	c.Delete(t, "stack")
	held("terrier.dev/deletion=retain")
	made(t, w, "a")
	s.Put(t, "store/three", state)
	c.Terrier(t, "replan", "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// A user may say that a stack begins with an empty state, once and with a reason.
func TestAStackBeginsEmptyOnPurpose(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	at := func(key string) {
		t.Helper()
		c.Apply(t, s.stack("stack", "", "key", key).manifest(t, things(w, "x", "a")))
	}
	at("one")
	c.AwaitReady(t, "stack")
	at("two")
	c.AwaitReason(t, "stack", "StateMissing")
	if r := c.TryTerrier(t, "state", "accept", "stack", "--yes"); r.Code == 0 || !strings.Contains(r.Stderr, "--reason") {
		t.Errorf("without a reason terrier state accept ended with %d: %s", r.Code, r.Stderr)
	}
	c.Terrier(t, "state", "accept", "stack", "--yes", "--reason", "the old account was closed")
	c.AwaitReady(t, "stack")
	made(t, w, "a", "a")
	given := c.Terrier(t, "retained", "show", "stack")
	for _, part := range []string{"States that were given up", "1 resource, serial ", `key "one"`, "the old account was closed"} {
		if !strings.Contains(given, part) {
			t.Errorf("terrier retained show says %s, want %q in it", given, part)
		}
	}
	if r := c.TryTerrier(t, "state", "accept", "stack", "--yes"); r.Code != 5 || !strings.Contains(r.Stderr, "there is nothing to accept") {
		t.Errorf("a second terrier state accept ended with %d: %s", r.Code, r.Stderr)
	}
	var why string
	for _, e := range auditLog(t, p, c.Namespace) {
		if e.What == audit.StateAccepted {
			why = e.Why
		}
	}
	if why != "the old account was closed" {
		t.Errorf("the audit log has the reason %q", why)
	}

	at("three")
	c.AwaitReason(t, "stack", "StateMissing")
	made(t, w, "a", "a")
	c.Delete(t, "stack") // where the last apply was
	c.AwaitGone(t, "stack")
	made(t, w, "a")
}

// A state moves from Terrier into a bucket, and back.
func TestAStateMovesBetweenTerrierAndABucket(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	engine := newBucketEngine(t, s)
	module := things(w, "x", "a")
	first := s.stack("first", "", "key", "first") // makes the bucket
	c.Apply(t, first.manifest(t, "resource \"terraform_data\" \"it\" {}"))
	c.AwaitReady(t, "first")

	c.Apply(t, inline("stack", kept, module))
	c.AwaitReady(t, "stack")
	serial := serials(t, c, "stack")[0]
	b := s.stack("stack", "", "key", "moved")
	c.Apply(t, b.manifest(t, module))
	o := c.AwaitReason(t, "stack", "StateMissing")
	pull := "terrier state pull stack --version " + serial + " -o old.tfstate"
	if !strings.Contains(message(o), pull) || !strings.Contains(message(o), "the Secret "+c.Namespace+"/tfstate-default-stack") {
		t.Errorf("the message is %q, want where it was and %q in it", message(o), pull)
	}
	c.Terrier(t, "state", "pull", "stack", "--version", serial, "-o", filepath.Join(engine.dir, "old.tfstate"))
	engine.at(t, "moved", "init", "-input=false", "-reconfigure")
	engine.at(t, "moved", "state", "push", "old.tfstate")
	c.Terrier(t, "replan", "stack")
	c.AwaitReady(t, "stack")

	// An apply in the bucket makes the Secret an old copy, which is no state to go on with.
	c.Apply(t, b.manifest(t, things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", kept, things(w, "x", "a", "b")))
	c.Kubectl(t, "annotate", "terraforms.infra.contrib.fluxcd.io/stack", "terrier.dev/backend-", "terrier.dev/backend-settings-")
	o = c.AwaitReason(t, "stack", "StateMissing")
	if !strings.Contains(message(o), "terrier state push stack old.tfstate") || !strings.Contains(message(o), "2 resources") {
		t.Errorf("the message is %q, want how to push the state of 2 resources", message(o))
	}
	write(t, engine.dir, "old.tfstate", engine.at(t, "moved", "state", "pull"))
	c.Terrier(t, "state", "push", "stack", filepath.Join(engine.dir, "old.tfstate"), "--yes")
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
	if n := began(w, "create", "a") + began(w, "create", "b"); n != 2 {
		t.Errorf("%d resources were created, want two", n)
	}
}

// A script does not begin before its state is there.
func TestAScriptWhoseStateIsNotWhereItWas(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"main.tf": things(w, "x", "a")})
	engine := newBucketEngine(t, s)
	one := scripted{Cluster: c, name: "scripts"}
	at := func(key string) {
		t.Helper()
		for _, o := range c.Apply(t, s.stack("scripts", "", "key", key).script(t, g.URL)) {
			testkit.Others(c, string(o.GetUID()))
		}
	}
	at("one")
	one.await(t, "Success", hash, hash)

	at("two")
	one.await(t, "Failed", "terrier state accept terraform.alustan.io/scripts --reason", hash)
	engine.move(t, "one", "two")
	c.Terrier(t, "replan", "terraform.alustan.io/scripts")
	one.await(t, "Success", hash, hash)
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("after the move a was created %d times, want once", n)
	}

	at("three")
	one.await(t, "Failed", `key "three"`, hash)
	c.Terrier(t, "state", "accept", "terraform.alustan.io/scripts", "--yes", "--reason", "a second one is wanted")
	one.await(t, "Success", hash, hash)
	made(t, w, "a", "a")

	at("four")
	one.await(t, "Failed", `key "four"`, hash)
	c.Kubectl(t, "delete", "terraforms.alustan.io", "scripts", "--timeout=5m") // where the last apply was
	made(t, w, "a")
}

// A stack of Alustan whose backend block names the key of a bucket: docs/migrate-from-alustan.md
// has the order. Before the object names that key, the plan adds everything and nothing runs.
func TestFromAlustanWithABucket(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, s.stack("first", "", "key", "first").manifest(t, "resource \"terraform_data\" \"it\" {}")) // makes the bucket
	c.AwaitReady(t, "first")
	const key = "env/net.tfstate"
	module := things(w, "kept", "a")
	engine := newBucketEngine(t, s)
	write(t, engine.dir, "things.tf", module)
	engine.at(t, key, "init", "-input=false")
	engine.at(t, key, "apply", "-input=false", "-auto-approve")
	w.Things() // the user's engine wrote it as another user than runs do

	g := testkit.NewGit(t)
	g.Username = ""
	g.Commit(map[string]string{"main.tf": module + "\nterraform {\n  backend \"s3\" {\n    bucket = \"store\"\n    key    = \"" + key + "\"\n  }\n}\n"})
	b, one := s.stack("net", ""), scripted{Cluster: c, name: "net"}
	apply := func() {
		t.Helper()
		text := strings.Replace(b.script(t, g.URL), "{name: net}", "{name: net, annotations: {terrier.dev/approval: manual}}", 1)
		for _, o := range c.Apply(t, text) {
			testkit.Others(c, string(o.GetUID()))
		}
	}
	apply()
	one.await(t, "", "plan-main-", "")
	if said := c.Terrier(t, "plan", "terraform.alustan.io/net"); !strings.Contains(said, "1 to add") {
		t.Errorf("without the key the plan is %s", said)
	}
	b.settings["key"] = key
	apply()
	one.await(t, "Success", "", "")
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("a was created %d times, want once, by the engine of before", n)
	}
	c.Kubectl(t, "annotate", "terraforms.alustan.io", "net", "terrier.dev/approval-")
	c.Terrier(t, "replan", "terraform.alustan.io/net")
	one.awaitStatus(t, "the script has run", func(status map[string]any) bool {
		return status["state"] == "Success" && strings.Contains(fmt.Sprint(status["message"]), "Applied")
	})
	c.Kubectl(t, "delete", "terraforms.alustan.io", "net", "--timeout=5m")
	made(t, w)
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("a was created %d times, want once", n)
	}
}

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

// plugged is a stack whose state a backend plug-in keeps.
type plugged struct {
	name, backend string
	settings, env map[string]string
	spec          string
	annotations   map[string]string
}

// manifest is the stack with this module, in the API of Flux.
func (p plugged) manifest(t *testing.T, hcl string) string {
	t.Helper()
	settings, err := json.Marshal(p.settings)
	if err != nil {
		t.Fatal(err)
	}
	notes := map[string]string{"terrier.dev/backend": p.backend, "terrier.dev/backend-settings": string(settings)}
	maps.Copy(notes, p.annotations)
	env := []map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		env = append(env, map[string]string{"name": name, "value": p.env[name]})
	}
	text := inline(p.name, p.spec+"\nrunnerPodTemplate: {spec: {env: "+inJSON(t, env)+"}}", hcl)
	return strings.Replace(text, "metadata: {", "metadata: {annotations: "+inJSON(t, notes)+", ", 1)
}

// script is the stack in the API of Alustan, with the module of a repository.
func (p plugged) script(t *testing.T, url string) string {
	t.Helper()
	at := map[string]string{"provider": p.backend}
	maps.Copy(at, p.settings)
	spec := map[string]any{
		"backend": at, "gitRepo": map[string]string{"url": url, "branch": "main"},
		"scripts": map[string]any{
			"apply":   map[string]string{"inline": "terraform apply -auto-approve"},
			"destroy": map[string]string{"inline": "terraform destroy -auto-approve"},
		},
	}
	if p.env != nil {
		spec["variables"] = p.env
	}
	return "apiVersion: alustan.io/v1alpha1\nkind: Terraform\nmetadata: {name: " + p.name + "}\nspec: " + inJSON(t, spec) + "\n"
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// aws is S3 with a table for locks.
type aws struct {
	*storage.S3
	locks *storage.DynamoDB
}

func newAWS(t *testing.T) aws { return aws{storage.NewS3(t), storage.NewDynamoDB(t)} }

// stack is one whose state is in the bucket store. With a table, its locks are in there.
func (a aws) stack(name, table string, more ...string) plugged {
	p := plugged{
		name: name, backend: "aws", spec: kept,
		settings: map[string]string{"s3": "store", "region": "eu-central-1", "endpoint": a.URL},
		env:      map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
	}
	if table != "" {
		p.settings["dynamoDB"], p.settings["dynamodb_endpoint"] = table, a.locks.URL
	}
	for i := 0; i+1 < len(more); i += 2 {
		p.settings[more[i]] = more[i+1]
	}
	return p
}

// made are the writes that are neither of a state nor of a lock.
func (a aws) made() []string {
	return slices.DeleteFunc(slices.Concat(a.S3.Take(), a.locks.Take()), func(w string) bool {
		return strings.Contains(w, ".tfstate") && !strings.Contains(w, ".terrier") || strings.Contains(w, " PutItem ") || strings.Contains(w, " DeleteItem ")
	})
}

// keeper is a stack, and what the test sees of the place of its state.
type keeper struct {
	plugged
	state func() string   // its content
	made  func() []string // what was written beside states and locks since the last call; nil if nothing is
}

// Backend plug-ins keep the states of whole stacks, in modules without a backend block:
// the first run makes the place, later ones make nothing, and a destroy leaves it.
func TestBackendPlugins(t *testing.T) {
	t.Parallel()
	s, google, db := newAWS(t), storage.GCS(t, testkit.Tool(t, "fake-gcs-server")), database.StartPostgreSQL(t)
	c := cluster(t)
	w := platform(t).World(t)
	shared := platform(t).Shared(t)
	db.Exec(t, "GRANT CREATE ON DATABASE "+database.Database+" TO "+database.Reader, "GRANT CREATE ON SCHEMA public TO "+database.Reader)
	kubeconfig := filepath.Join(shared, "kubeconfig")
	config, err := os.ReadFile(c.Kubeconfig)
	if err := errors.Join(err, os.WriteFile(kubeconfig, config, 0o600), sandbox.ChownWork(shared)); err != nil {
		t.Fatal(err)
	}

	all := []keeper{
		{s.stack("aws", ""), func() string { return string(s.Object(t, "store/"+c.Namespace+"/aws/terraform.tfstate")) }, s.made},
		{plugged{
			name: "gcs", backend: "gcs", settings: map[string]string{"bucket": "store", "endpoint": google.URL},
			env: map[string]string{"GOOGLE_OAUTH_ACCESS_TOKEN": "dummy", "GOOGLE_PROJECT": "p"},
		}, func() string { return get(t, google.URL+"/store/"+c.Namespace+"/gcs/default.tfstate") }, func() []string {
			return slices.DeleteFunc(google.Take(), func(w string) bool { return strings.Contains(w, "/o") })
		}},
		{plugged{
			name: "pg", backend: "pg",
			env: map[string]string{"PG_CONN_STR": fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", database.Reader, db.Port, database.Database), "PGPASSWORD": database.Password},
		}, func() string {
			db.Exec(t, `DO $$ BEGIN PERFORM 1 FROM "`+c.Namespace+`/pg".states WHERE data LIKE '%"resources"%'; IF NOT FOUND THEN RAISE EXCEPTION 'there is no state'; END IF; END $$`)
			return `"resources"`
		}, nil},
		{plugged{name: "kubernetes", backend: "kubernetes", settings: map[string]string{"config_path": kubeconfig, "secret_suffix": "own"}}, func() string {
			var secret corev1.Secret
			c.Get(t, "tfstate-default-own", &secret)
			return gunzip(t, secret.Data["tfstate"])
		}, nil},
		{plugged{name: "shelf", backend: "shelf", settings: map[string]string{"dir": shared}, env: map[string]string{"SHELF_KEY": "of the stack"}}, func() string {
			data, err := os.ReadFile(filepath.Join(shared, "states", c.Namespace+".shelf.tfstate"))
			if err != nil {
				t.Error(err)
			}
			return string(data)
		}, nil},
	}
	w.Fault(testkit.WorldFault{Call: "create", Name: "kubernetes", Do: "hold"})
	t.Run("all", func(t *testing.T) {
		for _, b := range all {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				keepsTheState(t, c, w, b)
			})
		}
	})
	if s.Region("store") != "eu-central-1" {
		t.Error("the bucket went with its stack")
	}
	if holder := lease(t, c, "lock-tfstate-default-own"); holder != "" {
		t.Errorf("after the last run %q holds the Lease", holder)
	}
}

// keepsTheState follows a stack from its first run to its destroy.
func keepsTheState(t *testing.T, c *testkit.Cluster, w *testkit.World, b keeper) {
	b.spec = kept
	c.Apply(t, b.manifest(t, things(w, "first", b.name)))
	if b.backend == "kubernetes" {
		w.Await(t.Context(), begun("create", b.name))
		if lease(t, c, "lock-tfstate-default-own") == "" {
			t.Error("during the apply the Lease has no holder")
		}
		w.Fault()
	}
	c.AwaitReady(t, b.name)
	if state := b.state(); !strings.Contains(state, `"resources"`) {
		t.Errorf("the state is %.80q", state)
	}
	if c.Exists(t, "tfstate-default-"+b.name, &corev1.Secret{}) {
		t.Error("Terrier keeps the state, too")
	}
	if b.made != nil && len(b.made()) == 0 {
		t.Error("the first run made nothing")
	}
	c.Apply(t, b.manifest(t, things(w, "second", b.name)))
	c.AwaitReady(t, b.name)
	if all := w.Named(b.name); len(all) != 1 || *all[0].Value != "second" {
		t.Errorf("the world holds %+v", all)
	}
	if b.made != nil {
		if made := b.made(); len(made) > 0 {
			t.Errorf("the second reconcile made %q", made)
		}
	}
	c.Delete(t, b.name)
	c.AwaitGone(t, b.name)
	if all := w.Named(b.name); len(all) != 0 || !strings.Contains(b.state(), `"resources"`) {
		t.Errorf("after the destroy the world holds %+v, and the state is %.80q", all, b.state())
	}
}

// lease is the holder of a Lease; empty if it has none.
func lease(t *testing.T, c *testkit.Cluster, name string) string {
	t.Helper()
	var l coordinationv1.Lease
	c.Get(t, name, &l)
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// get reads a URL; empty if there is nothing.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// The seed's backend of a stack of scripts: a bucket, and a table for its locks.
func TestScriptsWithABackend(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"main.tf": "variable \"value\" {}\n" + things(w, "${var.value}", "a")})
	b := s.stack("scripts", "locks")
	one := scripted{Cluster: c, name: b.name}
	apply := func(b plugged) {
		for _, o := range c.Apply(t, b.script(t, g.URL)) {
			testkit.Others(c, string(o.GetUID()))
		}
	}
	b.env["value"] = "first"
	apply(b)
	one.await(t, "Success", hash, hash)
	key := "store/" + c.Namespace + "/alustan-scripts/terraform.tfstate"
	if state := s.Object(t, key); !strings.Contains(string(state), "world_thing") {
		t.Errorf("the state is %.80q", state)
	}
	if made := strings.Join(s.made(), "\n"); !strings.Contains(made, "CreateTable locks") || !strings.Contains(made, "PUT /store?encryption") || !strings.Contains(made, ".terrier") {
		t.Errorf("the first run made %s", made)
	}
	b.env["value"] = "second"
	apply(b)
	awaitValue(t, w, "a", "second")
	one.await(t, "Success", hash, hash)
	if made := s.made(); len(made) > 0 {
		t.Errorf("the second run made %q", made)
	}

	unknown := plugged{name: "unknown", backend: "vault"}
	apply(unknown)
	scripted{Cluster: c, name: "unknown"}.await(t, "Failed", `unsupported backend: "vault"`, "")
	c.Kubectl(t, "delete", "terraforms.alustan.io", "unknown", "scripts", "--timeout=5m")
	if all := w.Things(); len(all) != 0 || s.Object(t, key) == nil {
		t.Errorf("after the destroy the world holds %+v, and the state is %.80q", all, s.Object(t, key))
	}
}

// If the bucket is gone, its states are gone with it: a run fails, and makes neither the
// bucket nor a resource a second time.
func TestBucketThatIsGone(t *testing.T) {
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	b := s.stack("stack", "")
	b.spec += "\nretryInterval: 1s"
	c.Apply(t, b.manifest(t, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	s.Lose()
	s.made()
	c.Terrier(t, "replan", "stack")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "backend aws: the bucket store is gone, and the state of this stack with it") {
			return errNot("that in " + message(s))
		}
		return nil
	})
	testkit.Eventually(t, testkit.Patience, "the log of a run ends with why it failed", func(context.Context) error { // the next attempt may have begun
		if said := strings.TrimSpace(c.Terrier(t, "logs", "stack")); !strings.Contains(said[strings.LastIndex(said, "\n")+1:], "The run failed: backend aws: the bucket store is gone") {
			return fmt.Errorf("it ends with %q", said[max(0, len(said)-300):])
		}
		return nil
	})
	if made := s.made(); len(made) > 0 || began(w, "create", "a") != 1 {
		t.Errorf("without the bucket the runs made %q, and %d resources", made, began(w, "create", "a"))
	}
	c.Kubectl(t, "annotate", "terraforms.infra.contrib.fluxcd.io/stack", "terrier.dev/deletion=retain")
}

// Two stacks that name one object as their state, in two namespaces: the second one waits.
func TestStateOfTwoNamespaces(t *testing.T) {
	s := newAWS(t)
	c, second := cluster(t), cluster(t)
	w := platform(t).World(t)
	c.Apply(t, s.stack("stack", "", "key", "shared").manifest(t, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	second.Apply(t, s.stack("stack", "", "key", "shared").manifest(t, things(w, "y", "a")))
	stack := second.AwaitReason(t, "stack", "StateShared")
	if !strings.Contains(message(stack), c.Namespace+"/stack") || began(w, "create", "a") != 1 {
		t.Errorf("the second stack says %q, and %d resources were made", message(stack), began(w, "create", "a"))
	}
}

// The engine locks a state in a table. While another program holds the lock nothing runs,
// and a lock whose holder died is shown and broken as any other.
func TestLockInATable(t *testing.T) {
	t.Parallel()
	s := newAWS(t) // ends after the stacks
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, s.stack("first", "locks").manifest(t, "resource \"terraform_data\" \"it\" {}"))
	c.AwaitReady(t, "first") // there is a bucket and a table

	elsewhere := newOutsider(t, s, "locked")
	held := elsewhere.hold(t)
	b := s.stack("stack", "locks", "key", "locked")
	b.spec += "\nretryInterval: 1s"
	c.Apply(t, b.manifest(t, things(w, "x", "a")))
	stack := c.AwaitReason(t, "stack", "LockHeld")
	id := stack.Status.Lock.Pending
	if lock := s.locks.Lock("locks", "store/locked"); id == "" || !strings.Contains(lock, id) {
		t.Errorf("status.lock is %+v, and the table says %s", stack.Status.Lock, lock)
	}
	if err := held.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = held.Wait() // it was killed
	if s.locks.Lock("locks", "store/locked") == "" {
		t.Fatal("the lock went with the program that held it")
	}
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold"})
	c.Terrier(t, "force-unlock", "stack", "--lock-id", id)
	w.Await(t.Context(), begun("create", "a"))
	if said, err := elsewhere.run("plan", "-lock-timeout=0s"); err == nil || !strings.Contains(said, "Error acquiring the state lock") {
		t.Errorf("during the apply another engine ended with %v: %s", err, said)
	}
	w.Fault()
	c.AwaitReady(t, "stack")
	if lock := s.locks.Lock("locks", "store/locked"); lock != "" || len(w.Named("a")) != 1 {
		t.Errorf("after the apply the lock is %q, and the world holds %+v", lock, w.Things())
	}
}

// outsider is an engine that Terrier did not start, on a state that Terrier uses.
type outsider struct{ program, dir string }

func newOutsider(t *testing.T, s aws, key string) outsider {
	t.Helper()
	e := outsider{testkit.Tool(t, "tofu"), t.TempDir()}
	config := fmt.Sprintf(`terraform {
  backend "s3" {
    bucket                      = "store"
    region                      = "eu-central-1"
    key                         = %q
    dynamodb_table              = "locks"
    endpoints                   = { s3 = %q, dynamodb = %q }
    use_path_style              = true
    skip_credentials_validation = true
    skip_metadata_api_check     = true
    skip_region_validation      = true
    skip_requesting_account_id  = true
    skip_s3_checksum            = true
  }
}
`, key, s.URL, s.locks.URL)
	if err := os.WriteFile(filepath.Join(e.dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := e.run("init"); err != nil {
		t.Fatalf("init ended with %v: %s", err, said)
	}
	return e
}

func (e outsider) command(args ...string) *exec.Cmd {
	cmd := exec.Command(e.program, args...)
	cmd.Dir = e.dir
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "CHECKPOINT_DISABLE=1")
	return cmd
}

func (e outsider) run(args ...string) (string, error) {
	said, err := e.command(append(args, "-no-color")...).CombinedOutput()
	return string(said), err
}

// hold starts a console, which holds the lock until it ends.
func (e outsider) hold(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := e.command("console")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := io.WriteString(in, "1+1\n"); err != nil {
		t.Fatal(err)
	}
	for answers := bufio.NewScanner(out); answers.Scan(); {
		if answers.Text() == "2" {
			return cmd
		}
	}
	t.Fatalf("the console did not answer: %s", said.String())
	return nil
}

// Two clusters with one bucket: a state belongs to the one that came first. When that one
// is gone another takes its place, and the first one writes no more should it come back.
func TestStateOfTwoClusters(t *testing.T) {
	t.Parallel()
	s := newAWS(t)
	first := cluster(t)
	w := platform(t).World(t)
	b, other := s.stack("stack", "", "key", "shared"), s.stack("other", "", "s3", "other")
	// The witness of one cluster knows only the runs there, so no stack destroys anything.
	b.spec, other.spec = "approvePlan: auto\nretryInterval: 1s", "approvePlan: auto"
	first.Apply(t, b.manifest(t, things(w, "x", "a")))
	first.AwaitReady(t, "stack")

	p := testkit.Up(t, "--run-writable", filepath.Dir(w.Path))
	second := p.Cluster(t)
	uid := func(c *testkit.Cluster) string {
		return strings.TrimSpace(c.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
	}
	of := func(c *testkit.Cluster) func(*v1alpha2.Terraform) error {
		return func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), "the state shared belongs to the stack") || !strings.Contains(message(s), uid(c)) {
				return errNot("that in " + message(s))
			}
			return nil
		}
	}
	second.Apply(t, b.manifest(t, things(w, "x", "a")))
	second.Await(t, "stack", of(first))
	if began(w, "create", "a") != 1 {
		t.Fatalf("the world holds %+v", w.Things())
	}

	b.annotations = map[string]string{"terrier.dev/adopt-state-of": uid(first)}
	second.Apply(t, b.manifest(t, things(w, "x", "a")))
	second.AwaitReady(t, "stack")
	if began(w, "create", "a") != 1 || began(w, "update", "a") != 0 {
		t.Fatalf("the world holds %+v after %d creations", w.Things(), began(w, "create", "a"))
	}
	b.annotations = nil
	first.Apply(t, b.manifest(t, things(w, "y", "a")))
	first.Await(t, "stack", of(second))
	if began(w, "update", "a") != 0 {
		t.Errorf("the world holds %+v", w.Things())
	}

	// The controller is killed while a run makes the bucket of another stack.
	held := s.Hold("PUT /other?versioning")
	second.Apply(t, other.manifest(t, things(w, "x", "b")))
	<-held.Arrived
	kill(t, p)
	start(t, p)
	held.Release()
	second.AwaitReady(t, "other")
	made(t, w, "a", "b")
	buckets := slices.DeleteFunc(s.made(), func(w string) bool { return w != "PUT /other" })
	if len(buckets) != 1 || !strings.Contains(string(s.Object(t, "other?versioning")), "Enabled") {
		t.Errorf("the bucket was made %d times, and its versioning is %s", len(buckets), s.Object(t, "other?versioning"))
	}
}

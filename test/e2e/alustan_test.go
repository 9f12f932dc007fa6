package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	examples "github.com/terrier-iac/terrier/examples/alustan"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/container"
)

// scripted is a stack of scripts in the namespace of a test, from one of the examples:
// with the repository of the test, with the state that Terrier keeps, and without an image.
type scripted struct {
	*testkit.Cluster
	name string
}

func newScripted(t *testing.T, c *testkit.Cluster, example, url string) scripted {
	t.Helper()
	return newImaged(t, c, example, url, "")
}

// newImaged is a stack of scripts with an image.
func newImaged(t *testing.T, c *testkit.Cluster, example, url, image string) scripted {
	t.Helper()
	text, err := examples.Files.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	s := scripted{Cluster: c}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		for _, line := range strings.Split(doc, "\n") {
			if strings.Contains(line, "  url: ") {
				doc = strings.Replace(doc, line, "    url: "+url, 1)
			}
		}
		doc = strings.ReplaceAll(doc, "  namespace: default\n", "")
		begin := strings.Index(doc, "  backend:\n")
		end := strings.Index(doc, "  scripts:\n")
		if begin > 0 && end > begin {
			doc = doc[:begin] + doc[end:]
		}
		doc, _, imaged := strings.Cut(doc, "  containerRegistry:\n")
		if imaged && image != "" {
			doc += "  containerRegistry:\n    imageName: " + image + "\n"
		}
		doc = strings.ReplaceAll(doc, "    sshKeySecret:\n      name: my-ssh-secret\n      key: ssh-privatekey\n", "")
		for _, o := range c.Apply(t, doc) {
			if o.GetKind() == "Terraform" {
				s.name = o.GetName()
				testkit.Others(c, string(o.GetUID()))
			}
		}
	}
	return s
}

func (s scripted) object(ctx context.Context, kind, version, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	return o, s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, o)
}

// await waits for a state, a message with a text in it, and a revision.
func (s scripted) await(t *testing.T, state, message, revision string) {
	t.Helper()
	s.awaitStatus(t, "the state is "+state, func(status map[string]any) bool {
		is := func(key, want string) bool { return strings.Contains(fmt.Sprint(status[key]), want) }
		return is("state", state) && is("message", message) && is("revision", revision)
	})
}

// awaitStatus waits until the status, which is of the newest spec, is as it should be.
func (s scripted) awaitStatus(t *testing.T, what string, is func(status map[string]any) bool) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, what, func(ctx context.Context) error {
		o, err := s.object(ctx, "Terraform", "alustan.io/v1alpha1", s.name)
		if err != nil {
			return err
		}
		status, _ := o.Object["status"].(map[string]any)
		if status["observedGeneration"] != o.GetGeneration() || !is(status) {
			return fmt.Errorf("the status is %v", status)
		}
		return nil
	})
}

// patch changes the object.
func (s scripted) patch(t *testing.T, patch string) {
	t.Helper()
	o, err := s.object(t.Context(), "Terraform", "alustan.io/v1alpha1", s.name)
	if err == nil {
		err = s.Client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lookNow has the source of a stack look for a new commit.
func (s scripted) lookNow(t *testing.T) {
	t.Helper()
	source, err := s.object(t.Context(), "GitRepository", "source.toolkit.fluxcd.io/v1", "alustan-"+s.name)
	if err != nil {
		t.Fatal(err)
	}
	poke := `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"` + time.Now().Format(time.RFC3339Nano) + `"}}}`
	if err := s.Client.Patch(t.Context(), source, client.RawPatch("application/merge-patch+json", []byte(poke))); err != nil {
		t.Fatal(err)
	}
}

// A stack of scripts is applied, follows its repository, says why a script failed, waits
// for a script that is not there, and is destroyed by its script.
func TestStackOfScripts(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	module := func(value string) map[string]string {
		return map[string]string{"terraform/main.tf": w.HCL() + `
variable "var1" {}
terraform {
  backend "s3" {
    bucket = "of-elsewhere"
  }
}
resource "world_thing" "a" {
  name  = "a"
  value = "${var.var1} ` + value + `"
}
`}
	}
	first := g.Commit(module("one"))
	s := newScripted(t, c, "inline.yaml", g.URL+"/terraform")
	s.await(t, "Success", first, first)
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "value1 one" {
		t.Errorf("the world holds %+v", all)
	}

	if got := c.Kubectl(t, "get", "terraforms", "-o", "name"); got != "" {
		t.Errorf("kubectl takes terraforms for those of this kind, and lists %q", got)
	}

	second := g.Commit(module("two"))
	s.lookNow(t)
	s.await(t, "Success", second, second)
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "value1 two" {
		t.Errorf("after another commit the world holds %+v", all)
	}

	s.patch(t, `{"spec":{"scripts":{"apply":{"inline":"echo \"it's $var1 and $TF_VAR_var2\" >&2; exit 1"}}}}`)
	s.await(t, "Failed", "it's value1 and value2", second)

	s.patch(t, `{"spec":{"scripts":{"apply":{"inline":null,"configMapRef":{"name":"later","key":"apply.sh"}}}}}`)
	s.await(t, "Failed", "later", second)
	c.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later}\ndata: {apply.sh: \"echo 'fine'\\n\"}\n")
	s.await(t, "Success", second, second)

	if err := c.Client.Delete(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": c.Namespace, "name": "later"},
	}}); err != nil {
		t.Fatal(err)
	}
	s.delete(t)
	testkit.Eventually(t, testkit.Patience, "the stack and its source are gone", func(ctx context.Context) error {
		for kind, version := range map[string]string{"Terraform": "alustan.io/v1alpha1", "GitRepository": "source.toolkit.fluxcd.io/v1"} {
			name := s.name
			if kind == "GitRepository" {
				name = "alustan-" + s.name
			}
			if left, err := s.object(ctx, kind, version, name); !apierrors.IsNotFound(err) {
				return errors.Join(err, fmt.Errorf("%s is there: %v", kind, left.Object["status"]))
			}
		}
		return nil
	})
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// The scripts of a ConfigMap are run in a repository without any configuration.
func TestScriptsWithoutModule(t *testing.T) {
	c := cluster(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"terraform/README": "nothing to plan\n"})
	s := newScripted(t, c, "configmap.yaml", g.URL+"/terraform")
	s.await(t, "Success", hash, hash)
	s.delete(t)
	s.awaitGone(t)
}

// scriptedFrom makes a stack of scripts from a manifest.
func scriptedFrom(t *testing.T, c *testkit.Cluster, manifest string) scripted {
	t.Helper()
	s := scripted{Cluster: c}
	for _, o := range c.Apply(t, manifest) {
		if o.GetKind() == "Terraform" {
			s.name = o.GetName()
			testkit.Others(c, string(o.GetUID()))
		}
	}
	return s
}

// The manifest of the last life of the API: files of the repository with arguments, and
// postDeploy, whose outputs the object shows. A failure of it names the script, and the
// outputs before it stay. The destroy runs the destroy script alone.
func TestPostDeploy(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{
		"main.tf": w.HCL() + `
variable "workspace" {}
resource "world_thing" "a" {
  name  = "a"
  value = var.workspace
}
output "place" { value = "in ${world_thing.a.value}" }
`,
		"deploy":         "set -e\n[ \"$1\" = -auto-approve ]\nterraform apply $1\n",
		"destroy":        "[ \"$1\" = -c ] && terraform destroy -auto-approve\n",
		"post/report.sh": "echo \"{\\\"outputs\\\": {\\\"args\\\": \\\"$*\\\", \\\"place\\\": \\\"$(terraform output -raw place)\\\", \\\"none\\\": null}}\"\n[ \"$2\" != -workspace=bad ] || { echo no such workspace >&2; exit 5; }\n",
	})
	s := scriptedFrom(t, c, `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: staging}
spec:
  variables: {TF_VAR_workspace: it's staging, TF_VAR_region: us-east-1}
  scripts: {deploy: deploy -auto-approve, destroy: destroy -c}
  postDeploy:
    script: post/report.sh
    args: {workspace: TF_VAR_workspace, region: TF_VAR_region}
  gitRepo: {url: "`+g.URL+`", branch: main}
`)
	s.await(t, "Success", hash, hash)
	output := func(name string) string {
		return c.Kubectl(t, "get", "terraforms.alustan.io", s.name, "-o", "jsonpath={.status.postDeployOutput."+name+".value}")
	}
	if got := output("args"); got != "-region=us-east-1 -workspace=it's staging" {
		t.Errorf("the arguments were %q", got)
	}
	if got := output("place"); got != "in it's staging" {
		t.Errorf("the place is %q", got)
	}
	s.patch(t, `{"spec":{"variables":{"TF_VAR_workspace":"bad"}}}`)
	s.await(t, "Failed", `of the postDeploy script "post/report.sh": no such workspace`, hash)
	if got := output("place"); got != "in it's staging" {
		t.Errorf("after a failure the place is %q, want the former one", got)
	}
	if got := *w.Named("a")[0].Value; got != "bad" {
		t.Errorf("the resource has %q: the script before was to apply it", got)
	}
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// The code of a stack is in an image that a build has pushed: the newest tag in the range
// counts, a newer one runs the script again, and the stack is destroyed by what its last
// image has.
func TestCodeInAnImage(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	handler, err := source.NewRegistry(t.TempDir(), source.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/net"
	push := func(version string) {
		t.Helper()
		base := container.Files(t, map[string]string{"etc/passwd": "root", "app/main.tf": "of the base"})
		code := container.Files(t, map[string]string{
			"app/main.tf": w.HCL() + "resource \"world_thing\" \"a\" {\n  name  = \"a\"\n  value = \"" + version + "\"\n}\n",
			"app/deploy":  "terraform apply -auto-approve\n",
			"app/destroy": "[ \"$1\" = -c ] && terraform destroy -auto-approve\n",
		})
		container.Push(t, repository+":"+version, container.Image(t, v1.Config{WorkingDir: "/app"}, base, code))
	}
	push("1.0.0")
	push("2.0.0")
	s := scriptedFrom(t, c, `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: imaged}
spec:
  environment: staging
  scripts: {deploy: deploy, destroy: destroy -c}
  containerRegistry: {provider: docker, imageName: "`+repository+`", semanticVersion: "~1.0.0"}
`)
	s.await(t, "Success", "1.0.0@sha256:", "1.0.0@sha256:")
	push("1.0.1")
	from, err := s.object(t.Context(), "OCIRepository", "source.toolkit.fluxcd.io/v1", "alustan-"+s.name)
	if err == nil {
		err = s.Client.Patch(t.Context(), from, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`)))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.await(t, "Success", "1.0.1@sha256:", "1.0.1@sha256:")
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "1.0.1" {
		t.Errorf("the world holds %+v, want what the newest image in the range has", all)
	}
	if got := c.Kubectl(t, "get", "terraforms.alustan.io", s.name, "-o", `jsonpath={.status.conditions[?(@.type=="FieldsIgnored")].message}`); !strings.Contains(got, "spec.environment") || strings.Contains(got, "containerRegistry") {
		t.Errorf("the fields without effect are said to be %q", got)
	}
	server.Close()
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// A stack whose code moves from git into an image is applied from there, and its GitRepository
// goes. While the image is not there, everything stays as it is.
func TestCodeThatMovesIntoAnImage(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	handler, err := source.NewRegistry(t.TempDir(), source.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/moved"
	code := func(in, value string) map[string]string {
		return map[string]string{
			in + "main.tf": w.HCL() + "resource \"world_thing\" \"a\" {\n  name  = \"a\"\n  value = \"" + value + "\"\n}\n",
			in + "deploy":  "terraform apply -auto-approve\n",
			in + "destroy": "terraform destroy -auto-approve\n",
		}
	}
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(code("", "git"))
	s := scriptedFrom(t, c, `
apiVersion: alustan.io/v1alpha1
kind: Terraform
metadata: {name: moved}
spec:
  scripts: {deploy: deploy, destroy: destroy}
  gitRepo: {url: "`+g.URL+`", branch: main}
`)
	s.await(t, "Success", hash, hash)
	sources := func() string {
		t.Helper()
		return c.Kubectl(t, "get", "gitrepositories,ocirepositories", "-o", "name")
	}
	s.patch(t, `{"spec":{"gitRepo":null,"containerRegistry":{"imageName":"`+repository+`","semanticVersion":"~1.0.0"}}}`)
	s.await(t, "Pending", "OCIRepository", hash)
	if got := sources(); !strings.Contains(got, "gitrepository.source.toolkit.fluxcd.io/alustan-moved") {
		t.Errorf("before the image is there, the sources are %q, want the former one among them", got)
	}
	container.Push(t, repository+":1.0.0", container.Image(t, v1.Config{WorkingDir: "/app"}, container.Files(t, code("app/", "image"))))
	from, err := s.object(t.Context(), "OCIRepository", "source.toolkit.fluxcd.io/v1", "alustan-"+s.name)
	if err == nil {
		err = s.Client.Patch(t.Context(), from, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`)))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.await(t, "Success", "1.0.0@sha256:", "1.0.0@sha256:")
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "image" {
		t.Errorf("the world holds %+v, want what the image has", all)
	}
	testkit.Eventually(t, testkit.Patience, "the former source is gone", func(context.Context) error {
		if got := strings.Fields(sources()); len(got) != 1 || got[0] != "ocirepository.source.toolkit.fluxcd.io/alustan-moved" {
			return fmt.Errorf("the sources are %q", got)
		}
		return nil
	})
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}

// A destroy script that changes alone runs nothing, and the deletion runs the new one.
func TestADestroyScriptThatChangesAlone(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"main.tf": things(w, "x", "a")})
	for _, o := range c.Apply(t, plugged{name: "scripts", backend: ""}.script(t, g.URL)) {
		testkit.Others(c, string(o.GetUID()))
	}
	s := scripted{Cluster: c, name: "scripts"}
	s.await(t, "Success", hash, hash)
	s.patch(t, `{"spec":{"scripts":{"destroy":{"inline":"echo the second one; terraform destroy -auto-approve"}}}}`)
	s.await(t, "Success", hash, hash)
	if runs := c.Terrier(t, "runs", "terraform.alustan.io/scripts"); strings.Count(runs, "script-") != 1 {
		t.Errorf("after the change the runs are %s", runs)
	}
	s.delete(t)
	testkit.Eventually(t, testkit.Patience, "the stack is gone", func(ctx context.Context) error {
		if left, err := s.object(ctx, "Terraform", "alustan.io/v1alpha1", s.name); !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("it is there: %v", left.Object["status"]))
		}
		return nil
	})
	if said := c.Terrier(t, "logs", "terraform.alustan.io/scripts"); !strings.Contains(said, "the second one") {
		t.Errorf("the log of the destroy is %s", said)
	}
	made(t, w)
}

package alustan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	examples "github.com/terrier-iac/terrier/examples/alustan"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/stack"
)

// object reads a manifest; a spec alone is one, too.
func object(t *testing.T, text string) *v1alpha1.Terraform {
	t.Helper()
	if !strings.Contains(text, "kind:") {
		text = "metadata: {name: net, namespace: apps}\nspec: " + text
	}
	obj := &v1alpha1.Terraform{}
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// example reads the Terraform of an example.
func example(t *testing.T, name string) *v1alpha1.Terraform {
	t.Helper()
	text, err := examples.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(text), "\n---\n")
	return object(t, docs[len(docs)-1])
}

const valid = `{scripts: {apply: {inline: a}, destroy: {inline: d}}, gitRepo: {url: "https://git.example/org/repo"}}`

func TestSuite(t *testing.T) {
	obj := object(t, valid)
	obj.Annotations = map[string]string{Approval: "manual"}
	dialecttest.Run(t, Dialect{}, obj)
}

// The manifests of the documents decode as they say.
func TestExamples(t *testing.T) {
	for name, want := range map[string]stack.Script{
		"inline.yaml": {Apply: stack.ScriptText{Text: "terraform apply -auto-approve\n"}, Destroy: stack.ScriptText{Text: "terraform destroy -auto-approve\n"}},
		"configmap.yaml": {
			Apply:   stack.ScriptText{Config: &stack.KeyRef{Name: "terraform-scripts", Key: "apply-script.sh"}},
			Destroy: stack.ScriptText{Config: &stack.KeyRef{Name: "terraform-scripts", Key: "destroy-script.sh"}},
		},
	} {
		st, err := Dialect{}.Decode(example(t, name))
		if err != nil {
			t.Fatal(err)
		}
		c := st.Configuration
		if diff := cmp.Diff(want, *c.Script); diff != "" {
			t.Errorf("%s: scripts (-want +got):\n%s", name, diff)
		}
		wantBackend := stack.Backend{Kind: stack.Plugin, Plugin: "aws", Suffix: "alustan-example-terraformconfig", Settings: map[string]string{"s3": "s3-store", "dynamoDB": "db-table", "region": "us-east-1"}}
		if diff := cmp.Diff(wantBackend, c.Backend); diff != "" {
			t.Errorf("%s: backend (-want +got):\n%s", name, diff)
		}
		var names []string
		for _, v := range c.Env {
			names = append(names, v.Name+"="+v.Value)
		}
		if got := strings.Join(names, " "); got != "var1=value1 TF_VAR_var1=value1 var2=value2 TF_VAR_var2=value2" {
			t.Errorf("%s: environment = %s", name, got)
		}
		if len(st.Ignored)+len(st.OnlyPods) > 0 {
			t.Errorf("%s: ignored are %q, and only in pods work %q", name, st.Ignored, st.OnlyPods)
		}
		if want := (stack.Image{Name: "docker.io/alustan/terrform", Login: &stack.KeyRef{Name: "my-dockerhub-secret", Key: "dockerhub-cred"}}); c.Image == nil || c.Image.Name != want.Name || *c.Image.Login != *want.Login {
			t.Errorf("%s: image = %+v, want %+v", name, c.Image, want)
		}
		s := st.Spec
		if s.Mode != stack.Auto || !s.Script || !s.DestroyLast || s.NoDestroyScript || s.Interval != 6*time.Hour || *s.MaxRetries != 10 {
			t.Errorf("%s: spec = %+v", name, s)
		}
	}
}

// Settings of a backend without its provider keep no state there, and the user is told.
func TestSettingsOfNoBackendAreIgnored(t *testing.T) {
	obj := example(t, "inline.yaml")
	delete(obj.Spec.Backend, "provider")
	st, err := Dialect{}.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"spec.backend.dynamoDB (needs spec.backend.provider)", "spec.backend.region (needs spec.backend.provider)", "spec.backend.s3 (needs spec.backend.provider)"}
	if diff := cmp.Diff(want, st.Ignored); diff != "" || st.Configuration.Backend.Kind != stack.Managed {
		t.Errorf("the state is %s, and ignored (-want +got):\n%s", st.Configuration.Backend.Kind, diff)
	}
}

func TestGitRepository(t *testing.T) {
	st, err := Dialect{}.Decode(example(t, "inline.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	g := st.Owned.(*sourcev1.GitRepository)
	if g.Spec.URL != "ssh://git@github.com/example/terraform-repo" || st.Configuration.Path != "terraform" || g.Spec.Reference.Branch != "main" || g.Spec.SecretRef.Name != "my-ssh-secret" || g.Annotations[location.SSHKeyAnnotation] != "ssh-privatekey" {
		t.Errorf("spec = %+v, annotations %v", g.Spec, g.Annotations)
	}
	if ref := st.Configuration.Source; ref.Kind != g.Kind || ref.Name != g.Name || g.Namespace != "default" {
		t.Errorf("the stack names %+v, and owns %s/%s", ref, g.Namespace, g.Name)
	}
	if owner := metav1.GetControllerOf(g); owner == nil || owner.Name != "example-terraformconfig" {
		t.Errorf("its owner is %v", owner)
	}
}

// A stack of the last life of the kind has its code in an image that a user has made. The
// manifest is that of its documents.
func TestCodeInAnImage(t *testing.T) {
	const manifest = `
metadata: {name: staging, namespace: apps, uid: u}
kind: Terraform
spec:
  environment: staging
  variables: {TF_VAR_workspace: staging, TF_VAR_region: us-east-1}
  scripts: {deploy: deploy, destroy: destroy -c}
  postDeploy: {script: aws-resource, args: {workspace: TF_VAR_workspace, region: TF_VAR_region}}
  containerRegistry: {provider: docker, imageName: alustan/infrastructure # image name to be pulled by the controller
    , semanticVersion: "~1.0.0", secretRef: {name: login, key: dockerhub}}`
	obj := object(t, manifest)
	st, err := Dialect{Interval: 2 * time.Hour}.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	o := st.Owned.(*sourcev1.OCIRepository)
	if s := o.Spec; s.URL != "oci://docker.io/alustan/infrastructure" || s.Reference.SemVer != "~1.0.0" || s.Interval.Duration != 2*time.Hour ||
		s.LayerSelector.MediaType != location.CodeOfImage || s.SecretRef.Name != "login" || o.Annotations[location.DockerConfigAnnotation] != "dockerhub" {
		t.Errorf("spec = %+v, annotations %v", s, o.Annotations)
	}
	if ref := st.Configuration.Source; ref.Kind != o.Kind || ref.Name != o.Name || o.Namespace != "apps" || !metav1.IsControlledBy(o, obj) {
		t.Errorf("the stack names %+v, and owns %s/%s", ref, o.Namespace, o.Name)
	}
	if got := strings.Join(st.Ignored, "; "); got != "spec.environment (Terrier writes no label of Argo CD)" {
		t.Errorf("ignored are %q", got)
	}
	if c := st.Configuration; c.Image != nil || len(st.OnlyPods) != 0 || c.Path != "" {
		t.Errorf("an image is made: %+v %v", c.Image, st.OnlyPods)
	}
	if v := (Dialect{}).View(obj); v.Source != "OCIRepository/alustan-staging" {
		t.Errorf("the source that is shown is %q", v.Source)
	}
	for name, tt := range map[string]struct {
		registry string
		want     string
	}{
		"ghcr":                      {`{provider: ghcr, imageName: team/net, semanticVersion: 1.x}`, "oci://ghcr.io/team/net"},
		"no provider":               {`{imageName: team/net, semanticVersion: 1.x}`, "oci://docker.io/team/net"},
		"the host wins":             {`{provider: ghcr, imageName: "localhost:5000/net", semanticVersion: 1.x}`, "oci://localhost:5000/net"},
		"another provider":          {`{provider: ecr, imageName: team/net, semanticVersion: 1.x}`, "spec.containerRegistry.provider is \"ecr\"; it may be docker or ghcr"},
		"a constraint that is none": {`{imageName: team/net, semanticVersion: newest}`, "spec.containerRegistry.semanticVersion is \"newest\""},
		"a name that is none":       {`{imageName: "team/net:v1", semanticVersion: 1.x}`, "spec.containerRegistry.imageName:"},
		"no name":                   {`{semanticVersion: 1.x}`, "spec.containerRegistry.imageName:"},
		"git, too":                  {`{imageName: team/net, semanticVersion: 1.x}, gitRepo: {url: "https://h/r"}`, "spec.gitRepo says that the code is in git: remove one of the two"},
	} {
		st, err := Dialect{}.Decode(object(t, `{scripts: {deploy: deploy}, containerRegistry: `+tt.registry+`}`))
		got := fmt.Sprint(err)
		if st.Owned != nil {
			got = st.Owned.(*sourcev1.OCIRepository).Spec.URL
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
	for every, want := range map[time.Duration]time.Duration{time.Second: time.Minute, dialect.Never: 6 * time.Hour} {
		st, err := Dialect{Interval: every}.Decode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Owned.(*sourcev1.OCIRepository).Spec.Interval.Duration; got != want {
			t.Errorf("drift is checked each %s, and the registry is asked each %s, want %s", every, got, want)
		}
	}
}

// What every life of the kind wrote is read.
func TestScripts(t *testing.T) {
	text := func(s string) stack.ScriptText { return stack.ScriptText{Text: s} }
	file := func(s string) stack.ScriptText { return stack.ScriptText{Path: s} }
	for name, tt := range map[string]struct {
		scripts string
		want    stack.Script
	}{
		"texts of the first":       {`{apply: "a", destroy: "d"}`, stack.Script{Apply: text("a"), Destroy: text("d")}},
		"objects of the second":    {`{apply: {inline: "a"}, destroy: {configMapRef: {name: scripts, key: k}}}`, stack.Script{Apply: text("a"), Destroy: stack.ScriptText{Config: &stack.KeyRef{Name: "scripts", Key: "k"}}}},
		"files of the third":       {`{deploy: deploy.sh, destroy: ./bin/destroy.sh}`, stack.Script{Apply: file("deploy.sh"), Destroy: file("bin/destroy.sh")}},
		"an inline script wins":    {`{apply: {inline: "a", configMapRef: {name: scripts, key: k}}}`, stack.Script{Apply: text("a")}},
		"a file cannot be outside": {`{deploy: ../../deploy.sh}`, stack.Script{Apply: file("deploy.sh")}},
		"files with arguments": {`{deploy: "deploy -e  staging", destroy: destroy -c}`, stack.Script{
			Apply: stack.ScriptText{Path: "deploy", Args: []string{"-e", "staging"}}, Destroy: stack.ScriptText{Path: "destroy", Args: []string{"-c"}}}},
		"quotes and dollars are as they were": {`{apply: "echo '$HOME' \\ $(x)\r\n"}`, stack.Script{Apply: text("echo '$HOME' \\ $(x)\r\n")}},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := Dialect{}.Decode(object(t, `{scripts: `+tt.scripts+`, gitRepo: {url: "https://git.example/org/repo"}}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, *st.Configuration.Script); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if st.Spec.NoDestroyScript != tt.want.Destroy.IsZero() {
				t.Errorf("NoDestroyScript = %v", st.Spec.NoDestroyScript)
			}
		})
	}
}

// The arguments of postDeploy are those of the former controller, in an order that does not
// change. What a variable holds is one argument, whatever it is.
func TestPostDeploy(t *testing.T) {
	obj := object(t, `{scripts: {deploy: deploy}, gitRepo: {url: "https://git.example/org/repo"},
variables: {TF_VAR_workspace: "it's $(x)", region: eu}, postDeploy: {script: ./bin/aws-resource, args: {workspace: TF_VAR_workspace, region: region, r: TF_VAR_region}}}`)
	st, err := Dialect{}.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	want := &stack.PostDeploy{Path: "bin/aws-resource", Args: []string{"-r=eu", "-region=eu", "-workspace=it's $(x)"}}
	if diff := cmp.Diff(want, st.Configuration.Script.PostDeploy); diff != "" {
		t.Errorf("postDeploy (-want +got):\n%s", diff)
	}
	if len(st.Ignored) != 0 {
		t.Errorf("ignored are %q", st.Ignored)
	}
	status := func(p *dialect.PostDeploy) string {
		Dialect{}.Encode(obj, dialect.Summary{PostDeploy: p, Now: time.Unix(1e9, 0)})
		if obj.Status.PostDeployOutput == nil {
			return ""
		}
		return string(obj.Status.PostDeployOutput.Raw)
	}
	outputs := map[string]json.RawMessage{"a": json.RawMessage(`[1]`), "b": json.RawMessage(`null`)}
	for _, tt := range []struct {
		about, want string
		printed     *dialect.PostDeploy
	}{
		{"before a run", "", nil},
		{"after a run", `{"a":{"value":[1]},"b":{"value":null}}`, &dialect.PostDeploy{Outputs: outputs}},
		{"while nothing new is known", `{"a":{"value":[1]},"b":{"value":null}}`, nil},
		{"after a run that printed none", "", &dialect.PostDeploy{}},
		{"after a run again", `{"a":{"value":[1]},"b":{"value":null}}`, &dialect.PostDeploy{Outputs: outputs}},
	} {
		if got := status(tt.printed); got != tt.want {
			t.Errorf("%s: postDeployOutput = %s, want %s", tt.about, got, tt.want)
		}
	}
	obj.Spec.PostDeploy = nil
	if got := status(nil); got != "" {
		t.Errorf("without spec.postDeploy the output is %s", got)
	}
}

// What means nothing is refused with the field and the way out.
func TestRefused(t *testing.T) {
	with := func(git, more string) string {
		return `{scripts: {apply: {inline: a}}, gitRepo: ` + git + more + `}`
	}
	for spec, want := range map[string]string{
		`{gitRepo: {url: "https://h/r"}}`:                                                    "spec.scripts.apply has no script",
		`{scripts: {apply: {}}, gitRepo: {url: "https://h/r"}}`:                              "spec.scripts.apply has no script",
		`{scripts: {deploy: a, apply: {inline: b}}, gitRepo: {url: "https://h/r"}}`:          "remove one of them",
		`{scripts: {apply: {configMapRef: {name: scripts}}}, gitRepo: {url: "https://h/r"}}`: "spec.scripts.apply.configMapRef needs a name and a key",
		`{scripts: {apply: 7}, gitRepo: {url: "https://h/r"}}`:                               "spec.scripts.apply is neither a text nor an object",
		`{scripts: {deploy: "a; rm -rf /"}, gitRepo: {url: "https://h/r"}}`:                  "spec.scripts.deploy is \"a; rm -rf /\", and no shell reads it",
		`{scripts: {deploy: " "}, gitRepo: {url: "https://h/r"}}`:                            "which names no file",
		`{scripts: {apply: {inline: a}}}`:                                                    "spec.gitRepo.url is missing",
		with(`{url: "file:///etc"}`, ""):                                                     "spec.gitRepo.url: the scheme",
		with(`{url: "https://ann:pw@h/r"}`, ""):                                              "spec.gitRepo.url: the URL holds credentials",
		with(`{url: "https://h/r", sshKey: KEY}`, ""):                                        "spec.gitRepo.sshKey holds a private key",
		with(`{url: "git@h:r", sshKeySecret: {key: k}}`, ""):                                 "spec.gitRepo.sshKeySecret.name is empty",
		with(`{url: "https://h/r"}`, `, variables: {PATH: /tmp}`):                            "PATH controls the engine",
		with(`{url: "https://h/r"}`, `, postDeploy: {script: a $b}`):                         "spec.postDeploy.script is",
		with(`{url: "https://h/r"}`, `, postDeploy: {script: a, args: [b]}`):                 "spec.postDeploy.args is no map",
		with(`{url: "https://h/r"}`, `, postDeploy: {script: a, args: {b=: c}}`):             "spec.postDeploy.args has \"b=\"",
		with(`{url: "https://h/r"}`, `, postDeploy: {script: a, args: {b: c}}`):              "spec.postDeploy.args.b names the variable \"c\", which spec.variables does not have",
		with(`{url: "https://h/r"}`, `, variables: {a-b: c}`):                                "not the name of an environment variable",
	} {
		_, err := Dialect{}.Decode(object(t, spec))
		if k := fault.Of(err); k != fault.Invalid && k != fault.Denied || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", spec, err, want)
		}
	}
}

func TestAnnotations(t *testing.T) {
	for name, tt := range map[string]struct {
		annotation, value string
		check             func(stack.Spec) bool
		wrong             bool
	}{
		"manual":                  {Approval, "manual", func(s stack.Spec) bool { return s.Mode == stack.Manual }, false},
		"a typing error":          {Approval, "manaul", func(s stack.Spec) bool { return s.Mode == stack.Manual }, true},
		"drift is reported":       {Drift, "report", func(s stack.Spec) bool { return s.ReportDrift }, false},
		"another interval":        {Interval, "90s", func(s stack.Spec) bool { return s.Interval == 90*time.Second }, false},
		"no interval":             {Interval, "0", func(s stack.Spec) bool { return s.Interval == dialect.Never }, false},
		"a bad interval":          {Interval, "soon", func(s stack.Spec) bool { return s.Interval == 6*time.Hour }, true},
		"more retries":            {Retries, "20", func(s stack.Spec) bool { return *s.MaxRetries == 20 }, false},
		"no retries":              {Retries, "0", func(s stack.Spec) bool { return *s.MaxRetries == 0 }, false},
		"retries with a unit":     {Retries, "3x", func(s stack.Spec) bool { return *s.MaxRetries == 10 }, true},
		"a number and more":       {Retries, "3 4", func(s stack.Spec) bool { return *s.MaxRetries == 10 }, true},
		"retries with a point":    {Retries, "3.5", func(s stack.Spec) bool { return *s.MaxRetries == 10 }, true},
		"too many retries":        {Retries, "99999999999999999999", func(s stack.Spec) bool { return *s.MaxRetries == 10 }, true},
		"less than no retries":    {Retries, "-1", func(s stack.Spec) bool { return *s.MaxRetries == 10 }, true},
		"a typing error of drift": {Drift, "repot", func(s stack.Spec) bool { return s.ReportDrift }, true},
		"resources are retained":  {dialect.Deletion, "retain", func(s stack.Spec) bool { return !s.DestroyLast && s.Retain }, false},
		"a suspended stack":       {Suspended, "true", func(s stack.Spec) bool { return s.Suspended }, false},
		"as Python has it":        {Suspended, "True", func(s stack.Spec) bool { return s.Suspended }, false},
		"as YAML has it":          {Suspended, "yes", func(s stack.Spec) bool { return s.Suspended }, false},
		"as a number":             {Suspended, "1", func(s stack.Spec) bool { return s.Suspended }, false},
		"as a switch, with space": {Suspended, " ON ", func(s stack.Spec) bool { return s.Suspended }, false},
		"not suspended":           {Suspended, "False", func(s stack.Spec) bool { return !s.Suspended }, false},
		"a typing error of it":    {Suspended, "ture", func(s stack.Spec) bool { return !s.Suspended }, true},
		"a state is adopted":      {dialect.AdoptState, "TRUE", func(s stack.Spec) bool { return s.AdoptState }, false},
		"it may be":               {dialect.AdoptState, "perhaps", func(s stack.Spec) bool { return !s.AdoptState }, true},
		"an unknown network":      {dialect.Network, "internet", func(stack.Spec) bool { return true }, true},
	} {
		obj := object(t, valid)
		obj.Annotations = map[string]string{tt.annotation: tt.value}
		st, err := Dialect{}.Decode(obj)
		if !tt.check(st.Spec) || (err != nil) != tt.wrong {
			t.Errorf("%s: spec = %+v, error %v", name, st.Spec, err)
		}
	}
	if st, _ := (Dialect{Interval: time.Minute}).Decode(object(t, valid)); st.Spec.Interval != time.Minute {
		t.Errorf("the interval of the platform is %v", st.Spec.Interval)
	}
}

// A destroy that a user has to approve is approved as an apply is, whatever the mode.
func TestApprovalOfADestroy(t *testing.T) {
	for name, deleting := range map[string]bool{"a deleted stack": true, "a stack": false} {
		obj := object(t, valid)
		obj.Annotations = map[string]string{dialect.Deletion: dialect.DeletionApprove, Approved: "plan-main-1"}
		if deleting {
			obj.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		st, err := Dialect{}.Decode(obj)
		if got := st.Spec.Approved == "plan-main-1" && st.Spec.Mode == stack.Manual; err != nil || got != deleting || !st.Spec.ApproveDestroy {
			t.Errorf("%s: mode %v, approved %q, error %v", name, st.Spec.Mode, st.Spec.Approved, err)
		}
	}
}

// What another controller left counts as created, unless that controller had not begun: a
// deletion then runs the destroy script, whatever that controller said last.
func TestWhatAnotherControllerLeftIsCreated(t *testing.T) {
	for status, want := range map[string]bool{
		`{}`:                 false,
		`{message: waiting}`: false,
		`{state: Pending}`:   false,
		`{state: Pending, observedGeneration: 1}`: false,
		`{observedGeneration: 1}`:                 true, // as metacontroller left it in the first versions
		`{state: Success}`:                        true,
		`{state: Completed}`:                      true,
		`{state: Progressing}`:                    true,
		`{state: Failed}`:                         true,
		`{state: Error}`:                          true,
		`{state: error}`:                          true,
		`{state: Blocked}`:                        true,
		`{state: of another release}`:             true,

		// Terrier's own status counts, once there is one.
		`{state: Failed, observedGeneration: 1, terrier: {memory: {}}}`:             false,
		`{state: Pending, observedGeneration: 1, terrier: {memory: {built: true}}}`: true,
	} {
		t.Run(status, func(t *testing.T) {
			st, err := Dialect{}.Decode(object(t, "metadata: {name: net, namespace: apps}\nkind: Terraform\nspec: "+valid+"\nstatus: "+status))
			if err != nil {
				t.Fatal(err)
			}
			if st.Status.Created != want {
				t.Errorf("created = %v, want %v", st.Status.Created, want)
			}
		})
	}
}

// The state says in upstream's words what the decision says, and the same knowledge is
// the same status.
func TestState(t *testing.T) {
	for name, tt := range map[string]struct {
		d        stack.Decision
		failures int
		want     string
	}{
		"applied":           {stack.Decision{Ready: stack.Ready, Reason: stack.Applied}, 0, Success},
		"a first run":       {stack.Decision{Ready: stack.Reconciling, Reason: stack.Applying}, 0, Pending},
		"a retry":           {stack.Decision{Ready: stack.Reconciling, Reason: stack.Applying}, 2, Failed},
		"a missing script":  {stack.Decision{Ready: stack.Reconciling, Reason: stack.InputsFailed}, 0, Failed},
		"a source to come":  {stack.Decision{Ready: stack.Reconciling, Reason: stack.SourceNotReady}, 0, Pending},
		"an invalid spec":   {stack.Decision{Ready: stack.Stalled, Reason: stack.SpecInvalid}, 0, Failed},
		"a plan to approve": {stack.Decision{Ready: stack.Held, Reason: stack.AwaitingApproval}, 0, Pending},
	} {
		obj := object(t, valid)
		s := dialect.Summary{Decision: tt.d, Status: stack.Status{Failure: stack.Failure{Failures: tt.failures}}, Now: time.Unix(1e9, 0)}
		s.Decision.Message = "m"
		Dialect{}.Encode(obj, s)
		if obj.Status.State != tt.want || obj.Status.Message != "m" {
			t.Errorf("%s: state %s, message %q, want %s", name, obj.Status.State, obj.Status.Message, tt.want)
		}
	}
	failed := object(t, valid)
	Dialect{}.Encode(failed, dialect.Summary{Decision: stack.Decision{Ready: stack.Reconciling, Reason: stack.RetryLater, Message: "exit code 3: creating\naccess denied"}, Now: time.Unix(1e9, 0)})
	if got, want := failed.Status.Message, "exit code 3: creating | access denied"; got != want {
		t.Errorf("message = %q, want %q: a column of kubectl shows one line", got, want)
	}
	if c := meta.FindStatusCondition(failed.Status.Conditions, "Ready"); c == nil || c.Message != "exit code 3: creating\naccess denied" {
		t.Errorf("the condition Ready is %v, want the lines as they are", c)
	}
	ignoring := object(t, valid)
	Dialect{}.Encode(ignoring, dialect.Summary{Ignored: []string{"spec.environment (no label)"}, Now: time.Unix(1e9, 0)})
	if c := meta.FindStatusCondition(ignoring.Status.Conditions, dialect.ConditionIgnored); c == nil || c.Reason != "NoEffect" || !strings.Contains(c.Message, "spec.environment (no label)") {
		t.Errorf("the condition about ignored fields is %v, want the reason NoEffect and the field", c)
	}
	obj := object(t, `{scripts: {apply: {inline: a, configMapRef: {name: scripts, key: k}}}, gitRepo: {url: "https://h/r"}}`)
	Dialect{}.Encode(obj, dialect.Summary{Now: time.Unix(1e9, 0)})
	if c := meta.FindStatusCondition(obj.Status.Conditions, conditionPassedOver); c == nil || !strings.Contains(c.Message, "spec.scripts.apply.configMapRef") {
		t.Errorf("the condition about the ConfigMap is %v", c)
	}
}

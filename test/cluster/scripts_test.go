package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// scriptedValues let the controller reconcile stacks of scripts, and trust the servers of
// the test.
const scriptedValues = `
kinds: [infra.contrib.fluxcd.io, alustan.io]
caBundle: {configMap: authorities}
extraEnv: [{name: SSL_CERT_DIR, value: /etc/terrier/ca}]
`

// Stacks of scripts in real pods, with the manifests of the documents of Alustan, one of them
// with git over ssh, the other with git over https. Two namespaces have a stack of one name,
// one repository and one name of an image, and a login each to a registry that asks for one.
// The controller builds and pushes the image of each; the node pulls it with the login of the
// namespace, and its script runs there under Pod Security "restricted". A script that fails
// says why. A commit makes another image, and nothing else does. The destroy scripts run while
// neither the registry nor the git servers answer.
func TestScripts(t *testing.T) {
	certificate, authority := runnertest.Certificate(t, NodeAddress)
	images := newGuarded(t, certificate, authority)
	code := testkit.NewGitAt(t, NodeAddress, certificate, codePath)
	first := code.Commit(scriptedModule("one"))
	base := images.push(t, "team/terrier-runner:v1")

	second := openRestricted(t)
	withoutScripted(t, second)
	r := prepare(t, scriptedValues, "pod-security.kubernetes.io/enforce", "restricted")
	r.set = []string{"--set", "rbac.namespaces={" + r.Namespace + "," + second.Namespace + "}", "--set", "flags.stack-image-base=" + base}
	r.trust(t, authority, chartNamespace)
	r.deploy(t, ship(t, root, "0.9.0"))
	ada := r.user(t, "ada", "terrier-operator")

	inline := newScripted(t, r.Cluster, r.stacks, images)
	inline.pull(t)
	stopSSH := inline.gitOverSSH(t, code)
	inline.apply(t, "inline.yaml", code)
	mapped := newScripted(t, second, r.In(t, second.Namespace), images)
	mapped.pull(t)
	mapped.apply(t, "configmap.yaml", code)
	both := []*scriptedStack{inline, mapped}
	for _, s := range both {
		s.await(t, "Success", first, first)
		s.startedFrom(t, s.built(t, 1))
	}
	ada.says(t, "Apply complete!", "logs", "terraform.alustan.io/"+scriptedName)
	inline.holds(t, true)
	mapped.holds(t, false)
	if a, b := images.pushes(inline.Namespace), images.pushes(mapped.Namespace); len(a) != 1 || len(b) != 1 || a[0] == b[0] {
		t.Errorf("two namespaces have the images %v and %v, want one each and no tag in common", a, b)
	}

	// The code is the same, and so is the image.
	inline.script(t, `echo "not this line" >&2; echo "it's $var1 and $TF_VAR_var2" >&2; exit 1`)
	inline.await(t, "Failed", "it's value1 and value2", first)
	inline.script(t, "terraform apply -auto-approve")
	inline.await(t, "Success", first, first)
	inline.startedFrom(t, inline.built(t, 1))

	// Another commit is another image. Of the scripts that a ConfigMap has, none is in it.
	later := code.Commit(scriptedModule("two"))
	for _, s := range both {
		s.look(t)
	}
	for _, s := range both {
		s.await(t, "Success", later, later)
		s.startedFrom(t, s.built(t, 2))
	}

	images.refuse()
	stopSSH()
	mapped.remove(t, &corev1.ConfigMap{}, "terraform-scripts")
	for _, s := range both {
		before := len(s.pods())
		s.remove(t, &v1alpha1.Terraform{}, scriptedName)
		s.awaitGone(t)
		for _, p := range s.pods()[before:] {
			if got := p.Spec.Containers[0].Image; got != "registry.example.com/team/terrier-runner:v0.9.0" {
				t.Errorf("after the deletion the pod %s starts from %s, want --run-image", p.Name, got)
			}
		}
		if len(s.pods()) == before {
			t.Errorf("no pod was started in %s after the deletion, want one with the destroy script", s.Namespace)
		}
		s.awaitNoPods(t)
	}
	inline.holds(t, false)
	helm(t, "uninstall", "terrier", "--wait")
}

// scriptedModule is a module below the path that the examples name.
func scriptedModule(value string) map[string]string {
	return map[string]string{"terraform/main.tf": fmt.Sprintf("variable \"var1\" {}\nresource \"terraform_data\" \"a\" {\n  input = \"${var.var1} %s\"\n}\n", value)}
}

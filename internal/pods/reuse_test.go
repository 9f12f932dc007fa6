package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Two checks have the same shape if their pods differ in nothing but the names of their
// runs, and no pod has one in which a run could leave something for the next.
func TestShapes(t *testing.T) {
	p := maker(t)
	shape := func(account, template string, names ...string) string {
		t.Helper()
		l := launch(stack.CheckRun, account, template)
		if len(names) > 0 {
			l.Name, l.Key, l.ID, l.Seal = names[0], names[0], names[0], names[0]
			l.Job.Name, l.Job.Stack, l.Job.ID = "team-a/"+names[0], names[0], names[0]
		}
		got, err := p.Shape(l)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const at = `{"spec":{"containers":[{"name":"` + stack.PodContainer + `",`
	plain := shape("", "")
	if plain == "" || plain != shape("", "", "other") {
		t.Errorf("the shapes of two stacks are %q and %q, want the same one", plain, shape("", "", "other"))
	}
	for name, tt := range map[string]struct {
		account, template string
		shared            bool
	}{
		"a ServiceAccount":        {"deployer", "", true},
		"other resources":         {"", at + `"resources":{"requests":{"cpu":"2"}}}]}}`, true},
		"a Secret":                {"", at + `"volumeMounts":[{"name":"s","mountPath":"/s"}]}],"volumes":[{"name":"s","secret":{"secretName":"s"}}]}}`, true},
		"another Secret":          {"", at + `"volumeMounts":[{"name":"s","mountPath":"/s"}]}],"volumes":[{"name":"s","secret":{"secretName":"t"}}]}}`, true},
		"a label":                 {"", `{"metadata":{"labels":{"team":"a"}},"spec":{"containers":[{"name":"` + stack.PodContainer + `"}]}}`, true},
		"a claim, read-only":      {"", at + `"volumeMounts":[{"name":"c","mountPath":"/c","readOnly":true}]}],"volumes":[{"name":"c","persistentVolumeClaim":{"claimName":"c"}}]}}`, true},
		"a claim":                 {"", at + `"volumeMounts":[{"name":"c","mountPath":"/c"}]}],"volumes":[{"name":"c","persistentVolumeClaim":{"claimName":"c"}}]}}`, false},
		"an empty directory":      {"", at + `"volumeMounts":[{"name":"e","mountPath":"/e"}]}],"volumes":[{"name":"e","emptyDir":{}}]}}`, false},
		"a deadline":              {"", `{"spec":{"activeDeadlineSeconds":600,"containers":[{"name":"` + stack.PodContainer + `"}]}}`, false},
		"a container before it":   {"", `{"spec":{"initContainers":[{"name":"i","image":"i"}],"containers":[{"name":"` + stack.PodContainer + `"}]}}`, false},
		"the processes of others": {"", `{"spec":{"shareProcessNamespace":true,"containers":[{"name":"` + stack.PodContainer + `"}]}}`, false},
	} {
		if got := shape(tt.account, tt.template); (got != "") != tt.shared || got == plain {
			t.Errorf("with %s the shape is %q, want one of its own: %v", name, got, tt.shared)
		}
	}
	secret := func(name string) string {
		return shape("", at+`"volumeMounts":[{"name":"s","mountPath":"/s"}]}],"volumes":[{"name":"s","secret":{"secretName":"`+name+`"}}]}}`)
	}
	if secret("s") == secret("t") {
		t.Error("pods with different Secrets have the same shape")
	}
	p.config.Settings.ProviderCache = &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/providers"}}
	if got := shape("", ""); got == "" || got == plain {
		t.Errorf("with a cache of providers, which is read-only, the shape is %q, want one of its own", got)
	}
}

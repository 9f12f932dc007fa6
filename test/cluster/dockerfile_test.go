package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/container"
)

// buildKit names a file with a rootless image of BuildKit, as `docker save` writes it. Neither
// this repository nor the machine of a test has one.
const buildKit = "TERRIER_BUILDKIT"

// A repository with a Dockerfile, built by the real BuildKit in a Job of a namespace of its
// own: the script finds what RUN has made, in a pod that Pod Security "restricted" admits. A
// step that fails is named in the message of the stack.
func TestDockerfile(t *testing.T) {
	kit := os.Getenv(buildKit)
	if kit == "" {
		t.Skipf("%s names no image of BuildKit", buildKit)
	}
	certificate, authority := runnertest.Certificate(t, NodeAddress)
	images := newGuarded(t, certificate, authority)
	base := images.push(t, "team/terrier-runner:v1")
	code := testkit.NewGitAt(t, NodeAddress, certificate, codePath)
	first := code.Commit(withDockerfile(base, "made by RUN", ""))

	builds := Open(t, "pod-security.kubernetes.io/enforce", "privileged")
	withoutScripted(t, builds)
	t.Cleanup(func() {
		if t.Failed() {
			told := release{Cluster: builds}
			said, err := told.kubectl(t, builds.Namespace, "logs", "--selector=app.kubernetes.io/name=terrier-image-build", "--all-containers", "--prefix", "--tail=100")
			jobs, err2 := told.kubectl(t, builds.Namespace, "get", "jobs,pods,events", "-o", "wide")
			t.Logf("builds:\n%s\n%s\n%v", jobs, said, errors.Join(err, err2))
		}
	})
	r := prepare(t, scriptedValues, "pod-security.kubernetes.io/enforce", "restricted")
	r.set = []string{
		"--set", "flags.stack-image-base=" + base, "--set", "imageBuilds.namespace=" + builds.Namespace, "--set", "imageBuilds.image=" + pushBuildKit(t, kit, authority),
		"--set", "flags.image-build-resources={requests.memory=64Mi,limits.memory=2Gi}",
	}
	r.trust(t, authority, chartNamespace)
	r.deploy(t, ship(t, root, "0.9.1"))

	s := newScripted(t, r.Cluster, r.stacks, images)
	s.pull(t)
	s.apply(t, "configmap.yaml", code)
	s.await(t, "Success", first, first)
	s.startedFrom(t, s.newest(t, "terrier-run-"))
	before := s.images.pushes(s.Namespace)
	s.script(t, `read made < /usr/share/made; echo "there is: $made" >&2; test "$made" = "made later"`)
	s.await(t, "Failed", "there is: made by RUN", first)
	if after := s.images.pushes(s.Namespace); !slices.Equal(after, before) {
		t.Errorf("for one revision %v were pushed, then %v", before, after)
	}
	if left, err := builds.Client.CoreV1().Secrets(builds.Namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("after the build there are the Secrets %v, %v", left.Items, err)
	}

	code.Commit(withDockerfile(base, "made by RUN", "RUN [\"/usr/bin/sh\", \"-c\", \"exit 3\"]\n"))
	s.look(t)
	s.await(t, "Failed", "did not complete successfully: exit code: 3", first)
	third := code.Commit(withDockerfile(base, "made later", ""))
	s.look(t)
	s.await(t, "Success", third, third)

	s.remove(t, &v1alpha1.Terraform{}, scriptedName)
	s.awaitGone(t)
	s.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
	testkit.Eventually(t, testkit.Patience, "no build is active", func(ctx context.Context) error {
		jobs, err := builds.Client.BatchV1().Jobs(builds.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool { return j.Status.Active > 0 }) {
			err = fmt.Errorf("there are %d Jobs", len(jobs.Items))
		}
		return err
	})
}

// withDockerfile is a module with a Dockerfile beside it, whose steps are run.
func withDockerfile(base, made, more string) map[string]string {
	files := scriptedModule("one")
	files["Dockerfile"] = "FROM " + base + "\nUSER 0\nRUN [\"/usr/bin/sh\", \"-c\", \"echo " + made + " >/usr/share/made\"]\n" + more
	return files
}

// newest is the digest of the newest image of the stack whose tag begins so.
func (s *scriptedStack) newest(t *testing.T, prefix string) string {
	t.Helper()
	tags := slices.DeleteFunc(s.images.pushes(s.Namespace), func(tag string) bool { return !strings.HasPrefix(tag, prefix) })
	if len(tags) == 0 {
		t.Fatalf("no image %s… was pushed, but %v", prefix, s.images.pushes(s.Namespace))
	}
	digest, _ := s.images.read(t, builtName+":"+tags[len(tags)-1], s.Namespace)
	return digest.String()
}

// pushBuildKit gives the cluster an image of BuildKit that trusts an authority, and returns its
// name.
func pushBuildKit(t *testing.T, file string, authority []byte) string {
	t.Helper()
	image, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, container.Layer(t, container.File("etc/ssl/certs/authority.crt", string(authority)))); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(team + "/buildkit:" + digest.Hex[:12])
	if err == nil {
		err = remote.Write(tag, image, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return "registry.example.com/team/buildkit@" + digest.String()
}

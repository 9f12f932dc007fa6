package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	examples "github.com/terrier-iac/terrier/examples/alustan"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/sshgit"
)

const (
	scriptedKind = "terraforms.alustan.io"
	scriptedName = "example-terraformconfig" // in both examples
	codePath     = "example/terraform-repo"  // of their repository
	builtName    = "alustan/terrform"        // of their image
	pullSecret   = "my-dockerhub-secret"     // of their registry
)

// withoutScripted removes the kind after the test, with what a failed test has left of it:
// with it `kubectl get terraforms` means another kind.
func withoutScripted(t *testing.T, c *Cluster) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": scriptedKind},
	}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testkit.Patience)
		defer cancel()
		live := scriptedClient(t, c)
		var left v1alpha1.TerraformList
		err := live.List(ctx, &left)
		if meta.IsNoMatchError(err) {
			return // the controller did not start
		}
		for i := range left.Items {
			free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			err = cmp.Or(err, client.IgnoreNotFound(live.Patch(ctx, &left.Items[i], free)))
		}
		err = cmp.Or(err, client.IgnoreNotFound(live.Delete(ctx, definition)))
		if err == nil { // the controller of the next test would find one that is about to go
			err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				err := live.Get(ctx, client.ObjectKeyFromObject(definition), definition.DeepCopy())
				return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
			})
		}
		if err != nil {
			t.Errorf("removing the definition %s: %v", scriptedKind, err)
		}
	})
}

// scriptedClient is a client that knows stacks of scripts.
func scriptedClient(t *testing.T, c *Cluster) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := cmp.Or(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	live, err := client.New(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// scriptedStack is the stack of one of the examples in a namespace.
type scriptedStack struct {
	*Cluster
	manifests *testkit.Cluster // the same namespace
	live      client.Client
	images    *guarded
	pods      func() []corev1.Pod
}

func newScripted(t *testing.T, c *Cluster, manifests *testkit.Cluster, images *guarded) *scriptedStack {
	t.Helper()
	return &scriptedStack{c, manifests, scriptedClient(t, c), images, c.seenPods(t)}
}

// pull makes the login of the namespace, as `kubectl create secret docker-registry` does. The
// examples name a key that it does not have.
func (s *scriptedStack) pull(t *testing.T) {
	t.Helper()
	config, err := json.Marshal(map[string]any{"auths": map[string]any{s.images.host: map[string]string{"username": s.Namespace, "password": s.images.password(s.Namespace)}}})
	if err != nil {
		t.Fatal(err)
	}
	s.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pullSecret},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	})
}

// gitOverSSH serves a repository with ssh at the usual port, and makes the Secret with a key
// for it. The function that it returns ends the server.
func (s *scriptedStack) gitOverSSH(t *testing.T, code *testkit.Git) (stop func()) {
	t.Helper()
	identity, public := sshgit.NewIdentity(t, "")
	host, _ := sshgit.NewSigner(t, "ed25519")
	server := sshgit.ServeAt(t, NodeAddress+":22", code.Root, public, host)
	s.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "my-ssh-secret"},
		Data:       map[string][]byte{"ssh-privatekey": []byte(identity), "known_hosts": server.Known(host)},
	})
	return server.Close
}

func (s *scriptedStack) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := s.live.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// apply applies an example with the servers of the test. Terrier keeps the state.
func (s *scriptedStack) apply(t *testing.T, example string, code *testkit.Git) {
	t.Helper()
	text, err := examples.Files.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.NewReplacer(
		"  namespace: default\n", "",
		"docker.io/", s.images.host+"/",
		"git@github.com:", "git@"+NodeAddress+":",
		"https://github.com/"+codePath, code.URL,
	).Replace(string(text))
	before, rest, found := strings.Cut(manifest, "  backend:\n")
	_, after, ends := strings.Cut(rest, "  scripts:\n")
	if !found || !ends {
		t.Fatalf("%s has no backend before its scripts", example)
	}
	s.manifests.Apply(t, before+"  scripts:\n"+after)
}

// await waits for a state, a message with a text in it, and a revision.
func (s *scriptedStack) await(t *testing.T, state, message, revision string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the state of the stack in "+s.Namespace+" is "+state, func(ctx context.Context) error {
		var o v1alpha1.Terraform
		if err := s.live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: scriptedName}, &o); err != nil {
			return err
		}
		if o.Status.ObservedGeneration != o.Generation || o.Status.State != state || !strings.Contains(o.Status.Message, message) || !strings.Contains(o.Status.Revision, revision) {
			return fmt.Errorf("the status is %+v", o.Status)
		}
		return nil
	})
}

// script changes the script that applies the stack.
func (s *scriptedStack) script(t *testing.T, text string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"scripts": map[string]any{"apply": map[string]any{"inline": text}}}})
	if err == nil {
		o := &v1alpha1.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: scriptedName}}
		err = s.live.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", patch))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// look has the source looked for a new commit now.
func (s *scriptedStack) look(t *testing.T) {
	t.Helper()
	if _, err := s.Kubectl(t, "annotate", "--overwrite", "gitrepository", "alustan-"+scriptedName, "reconcile.fluxcd.io/requestedAt="+time.Now().Format(time.RFC3339Nano)); err != nil {
		t.Fatal(err)
	}
}

// holds checks whether the state of the stack has the resource of the module.
func (s *scriptedStack) holds(t *testing.T, want bool) {
	t.Helper()
	state := string(s.manifests.State(t, "alustan-"+scriptedName))
	if strings.Contains(state, `"terraform_data"`) != want {
		t.Errorf("the state in %s is %s, want the resource in it: %v", s.Namespace, state, want)
	}
}

func (s *scriptedStack) remove(t *testing.T, o client.Object, name string) {
	t.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.live.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (s *scriptedStack) awaitGone(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the stack in "+s.Namespace+" is gone", func(ctx context.Context) error {
		var o v1alpha1.Terraform
		err := s.live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: scriptedName}, &o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, fmt.Errorf("it is there: %s", o.Status.Message))
	})
}

// built is the digest of the newest image of the stack, of which there have to be so many.
func (s *scriptedStack) built(t *testing.T, want int) string {
	t.Helper()
	tags := s.images.pushes(s.Namespace)
	if len(tags) != want {
		t.Fatalf("%s pushed %v, want %d images", s.Namespace, tags, want)
	}
	index, labels := s.images.read(t, builtName+":"+tags[want-1], s.Namespace)
	if labels["dev.terrier.namespace"] != s.Namespace {
		t.Errorf("the image of %s has the labels %v", s.Namespace, labels)
	}
	return index.String()
}

// startedFrom checks that the last run started from an image, which the node pulled with the
// login of the namespace, and that no run starts from another one than those that were built.
func (s *scriptedStack) startedFrom(t *testing.T, digest string) {
	t.Helper()
	all := s.pods()
	if len(all) == 0 {
		t.Fatalf("no pod was started in %s", s.Namespace)
	}
	for _, p := range all {
		if !strings.HasPrefix(p.Spec.Containers[0].Image, s.images.host+"/"+builtName+"@sha256:") {
			t.Errorf("the pod %s of %s starts from %s", p.Name, s.Namespace, p.Spec.Containers[0].Image)
		}
	}
	last := all[len(all)-1]
	want := s.images.host + "/" + builtName + "@" + digest
	if got := last.Spec.Containers[0].Image; got != want {
		t.Errorf("the pod %s of %s starts from %s, want %s", last.Name, s.Namespace, got, want)
	}
	if !slices.Contains(last.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: pullSecret}) {
		t.Errorf("the pod %s has the secrets %v, want %s", last.Name, last.Spec.ImagePullSecrets, pullSecret)
	}
	if pulled := s.images.pulls(s.Namespace); !slices.Contains(pulled, digest) {
		t.Errorf("the node pulled %v as %s, want %s", pulled, s.Namespace, digest)
	}
}

// seenPods keeps the pods of a namespace as they were at last, in the order of their
// beginning, also when they are gone.
func (c *Cluster) seenPods(t *testing.T) func() []corev1.Pod {
	t.Helper()
	var mu sync.Mutex
	var order []string
	seen := map[string]corev1.Pod{}
	see := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		p, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if _, known := seen[p.Name]; !known {
			order = append(order, p.Name)
		}
		seen[p.Name] = *p.DeepCopy()
	}
	_, watch := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.Client.CoreV1().RESTClient(), "pods", c.Namespace, fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }, DeleteFunc: see},
	})
	var watching sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	watching.Go(func() { watch.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	return func() []corev1.Pod {
		mu.Lock()
		defer mu.Unlock()
		all := make([]corev1.Pod, 0, len(order))
		for _, name := range order {
			all = append(all, seen[name])
		}
		return all
	}
}

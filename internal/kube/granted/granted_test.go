package granted

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// twoNamespaces are those of a test, and an account with no right in either.
type twoNamespaces struct {
	*testkit.Cluster
	set     kubernetes.Interface
	account *rest.Config
	other   string
}

func newNamespaces(t *testing.T) twoNamespaces {
	t.Helper()
	k := testkit.Kube(t)
	n := twoNamespaces{Cluster: k, other: testkit.Kube(t).Namespace, account: rest.CopyConfig(k.Config)}
	n.account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + k.Namespace + ":controller"}
	var err error
	if n.set, err = kubernetes.NewForConfig(k.Config); err != nil {
		t.Fatal(err)
	}
	return n
}

// grant lets the account use the Secrets of a namespace.
func (n twoNamespaces) grant(t *testing.T, in string) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "secrets"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "secrets"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "secrets"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: n.Namespace, Name: "controller"}},
	}
	if _, err := n.set.RbacV1().Roles(in).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.set.RbacV1().RoleBindings(in).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// object makes one of our objects in a namespace: ConfigMaps stand for stacks.
func (n twoNamespaces) object(t *testing.T, in string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "stack", Labels: map[string]string{"of": n.Namespace}}}
	if _, err := n.set.CoreV1().ConfigMaps(in).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (n twoNamespaces) secret(t *testing.T, in, name string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}
	if _, err := n.set.CoreV1().Secrets(in).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// follow starts an informer of Secrets for the account.
func (n twoNamespaces) follow(t *testing.T) cache.SharedIndexInformer {
	t.Helper()
	ours := informers.NewSharedInformerFactoryWithOptions(n.set, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "of=" + n.Namespace
	}))
	var namespaces Namespaces
	if err := namespaces.Follow(ours.Core().V1().ConfigMaps().Informer()); err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(n.account)
	if err != nil {
		t.Fatal(err)
	}
	w := namespaces.Watch(Options{
		Client: objects, Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: corev1.SchemeGroupVersion.WithKind("Secret"),
		Log: slog.New(slog.DiscardHandler), Retry: 20 * time.Millisecond,
	})
	informer := cache.NewSharedIndexInformer(w, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended; ours.Shutdown() })
	ours.StartWithContext(ctx)
	go func() { defer close(ended); informer.RunWithContext(ctx) }()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	return informer
}

// await waits until the informer has these Secrets, as NAMESPACE/NAME, and no others.
func await(t *testing.T, informer cache.SharedIndexInformer, what string, want ...string) {
	t.Helper()
	slices.Sort(want)
	testkit.Eventually(t, testkit.Patience, what, func(context.Context) error {
		var got []string
		for _, o := range informer.GetStore().List() {
			m := o.(*metav1.PartialObjectMetadata)
			if !strings.HasPrefix(m.Name, "default-token") {
				got = append(got, m.Namespace+"/"+m.Name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("the informer has other Secrets (-want +got):\n%s", diff)
		}
		return nil
	})
}

// The informer has the Secrets of the namespaces with our objects that grant them:
// it waits for none of the others, and takes one in when it is granted.
func TestSecretsOfGrantedNamespaces(t *testing.T) {
	n := newNamespaces(t)
	a, b := n.Namespace, n.other
	n.grant(t, a)
	n.object(t, a)
	n.object(t, b)
	n.secret(t, a, "one")
	n.secret(t, b, "theirs")
	informer := n.follow(t)
	await(t, informer, "the Secrets of the granted namespace are there", a+"/one")

	n.secret(t, a, "two")
	await(t, informer, "a new Secret is there", a+"/one", a+"/two")
	if err := n.set.CoreV1().Secrets(a).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, informer, "a deleted Secret is gone", a+"/two")

	n.grant(t, b)
	await(t, informer, "the other namespace has granted its Secrets", a+"/two", b+"/theirs")
	if err := n.set.CoreV1().ConfigMaps(b).Delete(t.Context(), "stack", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, informer, "a namespace without our objects is left", a+"/two")
	n.object(t, b)
	await(t, informer, "a namespace is used again", a+"/two", b+"/theirs")
}

// watches are the requests of an account that watch. They can be ended, as the API
// server ends each after some minutes.
type watches struct {
	next http.RoundTripper

	mu   sync.Mutex
	stop []context.CancelFunc
}

func (w *watches) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") == "" {
		return w.next.RoundTrip(req)
	}
	ctx, stop := context.WithCancel(req.Context())
	w.mu.Lock()
	w.stop = append(w.stop, stop)
	w.mu.Unlock()
	answer, err := w.next.RoundTrip(req.WithContext(ctx))
	if err == nil {
		answer.Body = watched{answer.Body, ctx}
	}
	return answer, err
}

// watched is the answer to a watch. It ends without an error.
type watched struct {
	io.ReadCloser
	ctx context.Context
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && w.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

func (w *watches) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stop := range w.stop {
		stop()
	}
	w.stop = nil
}

// A namespace whose right was revoked and given again has all its Secrets, and not only
// those that change from then on.
func TestANamespaceIsGrantedAgain(t *testing.T) {
	n := newNamespaces(t)
	a, w := n.Namespace, &watches{}
	n.account.Wrap(func(next http.RoundTripper) http.RoundTripper { w.next = next; return w })
	t.Cleanup(w.cut)
	n.grant(t, a)
	n.object(t, a)
	n.secret(t, a, "one")
	informer := n.follow(t)
	await(t, informer, "the Secret is there", a+"/one")
	n.secret(t, a, "two")
	await(t, informer, "a watch has told of a Secret", a+"/one", a+"/two")
	if err := n.set.RbacV1().RoleBindings(a).Delete(t.Context(), "secrets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n.set.RbacV1().Roles(a).Delete(t.Context(), "secrets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	account, err := kubernetes.NewForConfig(n.account)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the right is revoked", func(ctx context.Context) error {
		if _, err := account.CoreV1().Secrets(a).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("listing Secrets: %v, want it forbidden", err)
		}
		return nil
	})
	w.cut()
	await(t, informer, "no Secret is there")
	n.grant(t, a)
	await(t, informer, "the Secrets are there again", a+"/one", a+"/two")
}

// What is optional has no objects while it is forbidden, holds up no start, and has all
// objects once it is granted.
func TestOptional(t *testing.T) {
	n := newNamespaces(t)
	a := n.Namespace
	n.secret(t, a, "one")
	objects, err := metadata.NewForConfig(n.account)
	if err != nil {
		t.Fatal(err)
	}
	secrets := objects.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(a)
	source := Optional{Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Retry: 20 * time.Millisecond, Source: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return secrets.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return secrets.Watch(ctx, o)
		},
	}}
	informer := cache.NewSharedIndexInformer(source, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() { defer close(ended); informer.RunWithContext(ctx) }()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	await(t, informer, "nothing is there")
	n.grant(t, a)
	await(t, informer, "what was there before is there", a+"/one")
	n.secret(t, a, "two")
	await(t, informer, "a new Secret is there", a+"/one", a+"/two")
}

// Only an account that may watch the Secrets of all namespaces may do so everywhere.
func TestEverywhere(t *testing.T) {
	n := newNamespaces(t)
	n.grant(t, n.Namespace)
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	for name, tt := range map[string]struct {
		config *rest.Config
		want   bool
	}{
		"an administrator":            {n.Config, true},
		"an account of one namespace": {n.account, false},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := kubernetes.NewForConfig(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Everywhere(t.Context(), set.AuthorizationV1().SelfSubjectAccessReviews(), secrets)
			if err != nil || got != tt.want {
				t.Errorf("Everywhere() = %t, %v, want %t", got, err, tt.want)
			}
		})
	}
}

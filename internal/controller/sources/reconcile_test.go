package sources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/source"
)

var ready = map[string]string{"Ready": "True Succeeded", "ArtifactInStorage": "True Succeeded"}

func (s *stage) wantConditions(want map[string]string) {
	s.t.Helper()
	if diff := cmp.Diff(want, conditions(s.get().Status.Conditions)); diff != "" {
		s.t.Errorf("the conditions differ (-want +got):\n%s", diff)
	}
}

func TestASourceBecomesReady(t *testing.T) {
	s := newStage(t)
	digest := s.push("latest", "one")
	s.repository(nil)
	result := s.reconcile(s.reconciler(ociKind()))
	if result.RequeueAfter != time.Hour {
		t.Errorf("it is looked at again after %v, want its interval", result.RequeueAfter)
	}
	got := s.get()
	s.wantConditions(ready)
	if want := "stored artifact for revision 'latest@" + digest + "'"; message(got.Status.Conditions, "Ready") != want {
		t.Errorf("the message is %q, want %q", message(got.Status.Conditions, "Ready"), want)
	}
	a := got.Status.Artifact
	if content := s.file(a); content != "one" {
		t.Errorf("the artifact holds %q, want one", content)
	}
	if a.Revision != "latest@"+digest || !strings.HasPrefix(a.Path, "ocirepository/"+s.Namespace+"/net/") || a.LastUpdateTime.IsZero() || got.Status.ObservedGeneration != 1 {
		t.Errorf("the status is %+v", got.Status)
	}
	if diff := cmp.Diff([]string{"Normal NewArtifact"}, s.told()); diff != "" {
		t.Errorf("the events differ (-want +got):\n%s", diff)
	}
}

func TestAQuietPassWritesNothing(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	s.reconcile(r)
	before := s.get().ResourceVersion
	s.told()
	s.reconcile(r)
	if after := s.get().ResourceVersion; after != before {
		t.Errorf("the object was written: version %s after %s", after, before)
	}
	if got := s.told(); len(got) > 0 {
		t.Errorf("events were written: %v", got)
	}
	s.down()
	s.reconcile(r)
	before = s.get().ResourceVersion
	s.reconcile(r)
	if after := s.get().ResourceVersion; after != before {
		t.Errorf("the same failure was written twice: version %s after %s", after, before)
	}
}

func TestANewRevisionReplacesTheArtifact(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	s.reconcile(r)
	first := s.get().Status.Artifact
	s.push("latest", "two")
	s.edit(func(o *sourcev1.OCIRepository) {
		o.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "now"}
	})
	s.reconcile(r)
	got := s.get()
	if content := s.file(got.Status.Artifact); content != "two" {
		t.Errorf("the artifact holds %q, want two", content)
	}
	if got.Status.LastHandledReconcileAt != "now" {
		t.Errorf("lastHandledReconcileAt = %q, want now", got.Status.LastHandledReconcileAt)
	}
	if content := s.file(first); content != "one" {
		t.Errorf("the artifact before holds %q: it went while somebody may be fetching it", content)
	}
}

func TestAFailureKeepsTheArtifact(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	s.reconcile(r)
	s.told()
	s.down()
	first, second := s.reconcile(r).RequeueAfter, s.reconcile(r).RequeueAfter
	if first != time.Second || second != 2*time.Second {
		t.Errorf("it is looked at again after %v and %v, want 1s and 2s", first, second)
	}
	s.wantConditions(map[string]string{
		"Ready": "False OCIArtifactPullFailed", "FetchFailed": "True OCIArtifactPullFailed",
		"Reconciling": "True ProgressingWithRetry", "ArtifactInStorage": "True Succeeded",
	})
	if content := s.file(s.get().Status.Artifact); content != "one" {
		t.Errorf("the artifact holds %q, want one", content)
	}
	if diff := cmp.Diff([]string{"Warning OCIArtifactPullFailed"}, s.told()); diff != "" {
		t.Errorf("the events differ (-want +got):\n%s", diff)
	}
	s.up()
	s.reconcile(r)
	s.wantConditions(ready)
	if diff := cmp.Diff([]string{"Normal Succeeded"}, s.told()); diff != "" {
		t.Errorf("the events differ (-want +got):\n%s", diff)
	}
}

func TestWhatTheStoreLostIsMadeAgain(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	s.reconcile(r)
	path := filepath.Join(s.storeDir, s.get().Status.Artifact.Path)
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.down()
	s.reconcile(r)
	if got := s.get().Status; got.Artifact != nil || conditions(got.Conditions)["ArtifactInStorage"] != "" {
		t.Errorf("the status still names an artifact that nobody can fetch: %+v", got.Artifact)
	}
	s.up()
	s.reconcile(r)
	if content := s.file(s.get().Status.Artifact); content != "one" {
		t.Errorf("the artifact holds %q, want one", content)
	}
}

func TestTheURLFollowsTheServer(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	s.reconcile(s.reconciler(ociKind()))
	was := s.get().Status.Artifact
	s.options.BaseURL = func() string { return "http://127.0.0.1:1/elsewhere" }
	s.down()
	s.reconcile(s.reconciler(ociKind()))
	got := s.get().Status.Artifact
	if got == nil || !strings.HasPrefix(got.URL, "http://127.0.0.1:1/elsewhere/") || got.Digest != was.Digest {
		t.Errorf("after a restart the artifact is %+v, want the same at the new address", got)
	}
}

func TestOtherRulesMakeAnotherArtifact(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	s.reconcile(r)
	was := s.get().Status.Artifact
	rules := "*.tf\n"
	s.edit(func(o *sourcev1.OCIRepository) { o.Spec.Ignore = &rules })
	s.reconcile(r)
	got := s.get().Status
	if got.Artifact.Digest == was.Digest || got.Artifact.Revision != was.Revision || got.ObservedIgnore == nil || *got.ObservedIgnore != rules {
		t.Errorf("the artifact is %+v, want another one of the same revision", got.Artifact)
	}
}

func TestASuspendedSourceIsLeftAlone(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(func(spec *sourcev1.OCIRepositorySpec) { spec.Suspend = true })
	before := s.get().ResourceVersion
	if result := s.reconcile(s.reconciler(ociKind())); result.RequeueAfter != 0 {
		t.Errorf("it is looked at again after %v, want not by itself", result.RequeueAfter)
	}
	if after := s.get().ResourceVersion; after != before {
		t.Error("the object was written")
	}
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(func(spec *sourcev1.OCIRepositorySpec) {
		spec.Provider = "aws"
		spec.ProxySecretRef = &meta.LocalObjectReference{Name: "proxy"}
	})
	s.reconcile(s.reconciler(ociKind()))
	s.wantConditions(map[string]string{"Ready": "False Unsupported", "FetchFailed": "True Unsupported", "Stalled": "True Unsupported"})
	got := s.get().Status
	if want := "not supported: spec.provider aws, spec.proxySecretRef"; message(got.Conditions, "Stalled") != want || got.ObservedGeneration != 1 {
		t.Errorf("the message is %q at generation %d, want %q at 1", message(got.Conditions, "Stalled"), got.ObservedGeneration, want)
	}
}

func TestASecretThatComesLater(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(func(spec *sourcev1.OCIRepositorySpec) { spec.SecretRef = &meta.LocalObjectReference{Name: "pull"} })
	r := s.reconciler(ociKind())
	s.reconcile(r)
	if got := conditions(s.get().Status.Conditions); got["Ready"] != "False AuthenticationFailed" || got["Reconciling"] == "" || got["Stalled"] != "" {
		t.Errorf("without the Secret the conditions are %v", got)
	}
	err := s.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.reconcile(r)
	s.wantConditions(ready)
}

func TestAFullDiskIsTheStoresFailure(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	// The store cannot make its files.
	if err := os.RemoveAll(filepath.Join(s.storeDir, ".tmp")); err != nil {
		t.Fatal(err)
	}
	s.reconcile(s.reconciler(ociKind()))
	s.wantConditions(map[string]string{
		"Ready": "False StorageOperationFailed", "StorageOperationFailed": "True StorageOperationFailed", "Reconciling": "True ProgressingWithRetry",
	})
}

func TestAnObjectThatGoesTakesItsArtifacts(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	// The finalizer is what Flux left when it ran here before.
	s.edit(func(o *sourcev1.OCIRepository) { o.Finalizers = []string{sourcev1.SourceFinalizer} })
	s.reconcile(r)
	a := s.get().Status.Artifact
	if err := s.Client.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	s.reconcile(r)
	err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: "net"}, &sourcev1.OCIRepository{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("Get() = %v, want the object gone", err)
	}
	if s.options.Store.Has(source.Stored{Path: a.Path, Digest: a.Digest, Size: *a.Size}) {
		t.Error("its artifact is still there")
	}
	s.reconcile(r) // of an object that is not there
}

func TestTheJanitorKeepsWhatHasAnOwner(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	s.reconcile(s.reconciler(ociKind()))
	orphan := source.Key{Kind: "gitrepository", Namespace: s.Namespace, Name: "gone"}
	if _, err := s.options.Store.Put(orphan, nothing); err != nil {
		t.Fatal(err)
	}
	j := &janitor{reader: s.Client, store: s.options.Store, log: s.options.Log}
	if err := j.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys, err := s.options.Store.Keys("gitrepository"); err != nil || len(keys) != 0 {
		t.Errorf("left without an owner: %v, %v", keys, err)
	}
	if content := s.file(s.get().Status.Artifact); content != "one" {
		t.Errorf("the artifact of an object holds %q, want one", content)
	}
}

// Where an artifact is from, this controller alone can say. What a user writes into the status
// counts for nothing, and a user who asks for a reconcile gets an artifact that is certain.
func TestWhereAnArtifactIsFrom(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	s.repository(nil)
	r := s.reconciler(ociKind())
	s.reconcile(r)
	url := "oci://" + s.registry + "/net"
	from := func() string {
		t.Helper()
		a, err := Artifact(t.Context(), s.Client, sourcev1.OCIRepositoryKind, types.NamespacedName{Namespace: s.Namespace, Name: "net"}, provenance.Key{Text: s.options.Key})
		if err != nil {
			t.Fatal(err)
		}
		return a.Origin
	}
	if got := from(); got != url {
		t.Fatalf("the artifact is from %q, want %s", got, url)
	}
	s.reconcile(r) // a quiet pass changes nothing
	good := s.get().Status.Artifact

	obj := s.get()
	obj.Spec.URL = "oci://" + s.registry + "/other"
	if err := s.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	obj.Status.Artifact.Metadata["terrier.dev/origin"] = obj.Spec.URL
	obj.Status.Conditions[0].ObservedGeneration = obj.Generation
	if err := s.Client.Status().Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	if got := from(); got != "" {
		t.Errorf("a user who may change the status has the artifact be from %q", got)
	}
	s.edit(func(o *sourcev1.OCIRepository) { o.Spec.URL = url })
	s.reconcile(r)
	if got := s.get().Status.Artifact; from() != "" || got.Digest != good.Digest {
		t.Errorf("the artifact was made again for the same revision, or is from %q", from())
	}
	s.edit(func(o *sourcev1.OCIRepository) {
		o.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "now"}
	})
	s.reconcile(r)
	if got := from(); got != url {
		t.Errorf("after a request the artifact is from %q, want %s", got, url)
	}
	made := s.get().Status.Artifact
	s.reconcile(r)
	if s.get().Status.Artifact.Path != made.Path {
		t.Error("the same request made the artifact twice")
	}
}

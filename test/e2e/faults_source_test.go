package e2e

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// ofCode is a stack made of the source code.
func ofCode(spec string) string {
	return "---\napiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: stack}\nspec:\n" +
		indent(2, spec) + "\n  sourceRef: {kind: GitRepository, name: code}\n"
}

// patchSource changes the source code by a JSON merge patch.
func patchSource(t *testing.T, c *testkit.Cluster, patch string) {
	t.Helper()
	s := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "code"}}
	if err := c.Client.Patch(t.Context(), s, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// fetch has the source looked at, and waits until it was, with that outcome.
func fetch(t *testing.T, c *testkit.Cluster, token string, ready metav1.ConditionStatus) *sourcev1.GitRepository {
	t.Helper()
	patchSource(t, c, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"`+token+`"}}}`)
	var s sourcev1.GitRepository
	testkit.Eventually(t, testkit.Patience, "the source was looked at", func(ctx context.Context) error {
		s = sourcev1.GitRepository{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: "code"}, &s); err != nil {
			return err
		}
		if is := meta.FindStatusCondition(s.Status.Conditions, "Ready"); s.Status.LastHandledReconcileAt != token || is == nil || is.Status != ready {
			return errNot("such an outcome: " + readyOf(&s).Message)
		}
		return nil
	})
	return &s
}

func readyOf(s *sourcev1.GitRepository) metav1.Condition {
	if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// F30: while git is unreachable, the last artifact is used to repair drift and to
// destroy, and the source says why and since when.
func TestGitIsAway(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	at, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	way := testkit.NewProxy(t, g.URL, nil)
	g.URL = way.URL + at.Path
	g.Commit(map[string]string{"main.tf": things(w, "first", "a")})
	c.Apply(t, g.Manifest("code")+ofCode(kept))
	c.AwaitReady(t, "stack")
	g.Commit(map[string]string{"main.tf": things(w, "second", "a")})

	for token, fault := range map[string]struct {
		way testkit.ProxyFault
		url string
	}{
		"cut":         {way: testkit.ProxyFault{Cut: true}, url: g.URL},
		"silent":      {way: testkit.ProxyFault{Hold: true}, url: g.URL},
		"unavailable": {way: testkit.ProxyFault{Status: 503}, url: g.URL},
		"TLS":         {url: strings.Replace(g.URL, "http:", "https:", 1)},
	} {
		if token != "TLS" {
			way.Fault(fault.way)
		}
		patchSource(t, c, `{"spec":{"timeout":"1s","url":"`+fault.url+`"}}`)
		if token == "TLS" {
			way.Fault() // only now: the new commit is not to be had before
		}
		s := fetch(t, c, token, metav1.ConditionFalse)
		if is := readyOf(s); s.Status.Artifact == nil || is.Message == "" || is.LastTransitionTime.IsZero() {
			t.Errorf("%s: the source has the artifact %v, and says %+v", token, s.Status.Artifact, is)
		}
	}
	w.Edit(func(thing *testkit.WorldThing) bool { thing.Value = new("by hand"); return true })
	c.Terrier(t, "replan", "stack")
	testkit.Eventually(t, testkit.Patience, "the drift is repaired", func(context.Context) error {
		if all := w.Named("a"); len(all) != 1 || *all[0].Value != "first" {
			return errNot("the first a again")
		}
		return nil
	})
	c.AwaitReady(t, "stack")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// planned waits until a plan of a revision waits for approval.
func planned(t *testing.T, c *testkit.Cluster, revision string) {
	t.Helper()
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.LastPlannedRevision != revision || s.Status.Plan.Pending == "" {
			return errNot("a plan of " + revision + " pending")
		}
		return nil
	})
}

// F31: another history, a tag that moved and a branch that is gone are three
// different things, and none of them destroys anything.
func TestHistoryIsRewritten(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	first := g.Commit(map[string]string{"main.tf": things(w, "first", "a")})
	c.Apply(t, g.Manifest("code")+ofCode("interval: 1h\ndestroyResourcesOnDeletion: true"))
	approved := c.AwaitPending(t, "stack").Status.Plan.Pending
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+approved+`"}}`)
	c.AwaitReady(t, "stack")

	// The approval is of the plan that was, and not of another history.
	g.Do("checkout", "--quiet", "--orphan", "other")
	second := g.Commit(map[string]string{"main.tf": things(w, "rewritten", "a")})
	g.Do("branch", "--move", "--force", "main")
	g.Do("push", "--quiet", "--force", "origin", "main")
	s := fetch(t, c, "rewritten", metav1.ConditionTrue)
	if s.Status.Artifact.Revision != "main@sha1:"+second || first == second {
		t.Errorf("the revision is %s, want that of %s in place of %s", s.Status.Artifact.Revision, second, first)
	}
	planned(t, c, "main@sha1:"+second)

	g.Do("tag", "v1", "HEAD")
	g.Do("push", "--quiet", "origin", "v1")
	patchSource(t, c, `{"spec":{"ref":{"branch":null,"tag":"v1"}}}`)
	fetch(t, c, "tagged", metav1.ConditionTrue)
	moved := g.Commit(map[string]string{"main.tf": things(w, "second", "a")})
	g.Do("tag", "--force", "v1", "HEAD")
	g.Do("push", "--quiet", "--force", "origin", "v1")
	if s := fetch(t, c, "moved", metav1.ConditionTrue); s.Status.Artifact.Revision != "v1@sha1:"+moved {
		t.Errorf("the revision is %s, want v1 of %s", s.Status.Artifact.Revision, moved)
	}
	planned(t, c, "v1@sha1:"+moved)
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "first" {
		t.Errorf("the world holds %+v; want nothing changed before it is approved", all)
	}

	g.Do("push", "--quiet", "origin", "--delete", "v1")
	gone := fetch(t, c, "gone", metav1.ConditionFalse)
	if is := readyOf(gone); gone.Status.Artifact == nil || !strings.Contains(is.Message, "v1") {
		t.Errorf("the source has the artifact %v and says %q, want the last one kept and v1 named", gone.Status.Artifact, is.Message)
	}
	patchSource(t, c, `{"spec":{"ref":{"tag":null,"branch":"feature"}}}`)
	if is := readyOf(fetch(t, c, "feature", metav1.ConditionFalse)); !strings.Contains(is.Message, "feature") {
		t.Errorf("the source says %q, want the branch named", is.Message)
	}
	made(t, w, "a")
}

// F32: an artifact whose digest is wrong is not unpacked, and the resources stay as
// they are until the source is correct again.
func TestCorruptArtifactIsRefused(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": things(w, "first", "a")})
	c.Apply(t, g.Manifest("code")+ofCode("approvePlan: auto\ninterval: 1h\nretryInterval: 1s\ndestroyResourcesOnDeletion: true"))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"spec":{"suspend":true}}`)
	g.Commit(map[string]string{"main.tf": things(w, "second", "a")})
	s := fetch(t, c, "second", metav1.ConditionTrue)

	path := filepath.Join(p.Dir, "artifacts", filepath.FromSlash(s.Status.Artifact.Path))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte{}, whole...)
	flipped[len(flipped)/2] ^= 1
	if err := os.WriteFile(path, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Patch(t, "stack", `{"spec":{"suspend":false}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "digest") {
			return errNot("a word of the digest")
		}
		return testkit.HasReason("ArtifactFailed")(s)
	})
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "first" {
		t.Errorf("the world holds %+v, want the first a", all)
	}
	fetch(t, c, "again", metav1.ConditionTrue) // the source notices, and makes it again
	c.AwaitReady(t, "stack")
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "second" {
		t.Errorf("the world holds %+v, want the second a", all)
	}
}

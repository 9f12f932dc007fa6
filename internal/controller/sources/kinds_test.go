package sources

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func nothing(io.Writer) error { return nil }

// serveGit serves a repository with one commit to clients that know the password.
func serveGit(t *testing.T, content string) (url, commit string) {
	t.Helper()
	root, work := t.TempDir(), t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = work
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.WriteFile(filepath.Join(work, "main.tf"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "--quiet", "--initial-branch=main", ".")
	git("add", "--all")
	git("commit", "--quiet", "--message=one")
	git("clone", "--quiet", "--bare", ".", filepath.Join(root, "net.git"))
	backend := &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "canary" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/net.git", git("rev-parse", "HEAD")
}

func (s *stage) secret(name string, data map[string]string) *meta.LocalObjectReference {
	s.t.Helper()
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, StringData: data}
	if err := s.Client.Create(s.t.Context(), obj); err != nil {
		s.t.Fatal(err)
	}
	return &meta.LocalObjectReference{Name: name}
}

func TestGitRepository(t *testing.T) {
	s := newStage(t)
	url, commit := serveGit(t, "from git")
	obj := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"},
		Spec: sourcev1.GitRepositorySpec{URL: url, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: s.secret("git", map[string]string{"username": "u", "password": "canary"})},
	}
	if err := s.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	s.reconcile(s.reconciler(gitKind()))
	s.read(obj)
	a := obj.Status.Artifact
	if content := s.file(a); content != "from git" || a.Revision != "main@sha1:"+commit {
		t.Errorf("the artifact %q holds %q, want the commit %s", a.Revision, content, commit)
	}

	obj.Spec.RecurseSubmodules = true
	obj.Spec.Include = []sourcev1.GitRepositoryInclude{{GitRepositoryRef: meta.LocalObjectReference{Name: "other"}}}
	if err := s.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	s.reconcile(s.reconciler(gitKind()))
	s.read(obj)
	if got, want := message(obj.Status.Conditions, "Stalled"), "not supported: spec.include, spec.recurseSubmodules"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

// A commit that is not signed as the spec asks makes no artifact, and the one before stays.
func TestGitRepositoryWithSignatures(t *testing.T) {
	s, g, signer := newStage(t), testkit.NewGit(t), testkit.NewSigner(t)
	g.Commit(map[string]string{"main.tf": "unsigned"})
	obj := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"},
		Spec: sourcev1.GitRepositorySpec{URL: g.URL, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: s.secret("git", map[string]string{"username": g.Username, "password": g.Password}),
			Verification: &sourcev1.GitRepositoryVerification{Mode: sourcev1.ModeGitHEAD, SecretRef: *s.secret("keys", map[string]string{"release.asc": string(signer.Public)})}},
	}
	if err := s.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(gitKind())
	s.reconcile(r)
	s.read(obj)
	if got := conditions(obj.Status.Conditions); obj.Status.Artifact != nil || got["Stalled"] != "True "+source.ReasonSignature {
		t.Errorf("for a commit without a signature the artifact is %v and the conditions are %v", obj.Status.Artifact, got)
	}
	sign := []string{"-c", "gpg.program=" + signer.Program, "commit", "--quiet", "--allow-empty", "--gpg-sign=" + signer.User, "--message=signed"}
	g.Do(sign...)
	g.Do("push", "--quiet", "origin", "main")
	s.reconcile(r)
	s.read(obj)
	signed := obj.Status.Artifact
	if mode := obj.Status.SourceVerificationMode; signed == nil || s.file(signed) != "unsigned" || mode == nil || *mode != sourcev1.ModeGitHEAD {
		t.Fatalf("for a signed commit the status is %+v", obj.Status)
	}
	g.Commit(map[string]string{"main.tf": "unsigned again"})
	s.reconcile(r)
	s.read(obj)
	if obj.Status.Artifact == nil || obj.Status.Artifact.Digest != signed.Digest {
		t.Errorf("after another commit without a signature the artifact is %+v, want the one before", obj.Status.Artifact)
	}
}

// An artifact that an earlier release made with pointers of Git LFS is made again for
// the same commit if they stall a stack, and only then: it gets another digest, which
// ends pending plans. What cannot be made again stays, and the source stays ready.
func TestArtifactsWithPointers(t *testing.T) {
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("ab", 32) + "\nsize 8\n"
	for name, tt := range map[string]struct {
		was, origin string
		roots       []string
		again       bool
		told        []string
	}{
		"a root module has a pointer":              {pointer, "from git", []string{"other", "."}, true, []string{"Normal NewArtifact"}},
		"another directory has a pointer":          {pointer, "from git", []string{"other"}, false, nil},
		"no stack has it":                          {pointer, "from git", nil, false, nil},
		"a root module has none":                   {"made by an earlier release", "from git", []string{"."}, false, nil},
		"the server lacks its content":             {pointer, pointer, []string{"."}, false, []string{"Warning GitOperationFailed"}},
		"the server lacks it, and no stack has it": {pointer, pointer, []string{"other"}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.options.Roots = func(context.Context, string, client.ObjectKey) ([]string, error) { return slices.Clone(tt.roots), nil }
			var log strings.Builder
			s.options.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			url, commit := serveGit(t, tt.origin)
			obj := &sourcev1.GitRepository{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"},
				Spec: sourcev1.GitRepositorySpec{URL: url, Interval: metav1.Duration{Duration: time.Hour},
					Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: s.secret("git", map[string]string{"username": "u", "password": "canary"})},
			}
			if err := s.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(tt.was), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "other"), 0o755); err != nil {
				t.Fatal(err)
			}
			old, err := s.options.Store.Put(gitKind().key(s.Namespace, "net"), func(w io.Writer) error { return archive.Pack(dir, nil, w, archive.Limits{}) })
			if err != nil {
				t.Fatal(err)
			}
			obj.Status.Artifact = &meta.Artifact{URL: s.options.BaseURL() + "/" + old.Path, Path: old.Path, Digest: old.Digest, Size: &old.Size,
				Revision: "main@sha1:" + commit, LastUpdateTime: metav1.Now()}
			if err := s.Client.Status().Update(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time after a restart
				s.reconcile(s.reconciler(gitKind()))
				s.read(obj)
				if is := obj.Status.Artifact; is.Revision != "main@sha1:"+commit || (is.Digest != old.Digest) != tt.again {
					t.Errorf("the artifact is %s %s, which was %s", is.Revision, is.Digest, old.Digest)
				}
				if got := conditions(obj.Status.Conditions); !maps.Equal(got, ready) {
					t.Errorf("the conditions are %v, want %v", got, ready)
				}
				// What is known is not searched for again, which would fail here.
				s.options.Scratch = filepath.Join(dir, "main.tf")
			}
			if got := s.told(); !slices.Equal(got, tt.told) {
				t.Errorf("the events are %q, want %q", got, tt.told)
			}
			if unexpected := strings.Contains(log.String(), "not searched"); unexpected {
				t.Errorf("it was searched again: %s", log.String())
			}
			if tt.again {
				if content := s.file(obj.Status.Artifact); content != tt.origin {
					t.Errorf("the artifact holds %q, want %q", content, tt.origin)
				}
			}
		})
	}
}

// What was searched and tried is done again for a new request, and for a new stack.
func TestArtifactsWithPointersAreSearchedAgain(t *testing.T) {
	s := newStage(t)
	var roots []string
	s.options.Roots = func(context.Context, string, client.ObjectKey) ([]string, error) { return slices.Clone(roots), nil }
	obj := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"}}
	obj.Status.Artifact = &meta.Artifact{}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	stored, err := s.options.Store.Put(gitKind().key(s.Namespace, "net"), func(w io.Writer) error { return archive.Pack(dir, nil, w, archive.Limits{}) })
	if err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(gitKind())
	seen := map[string]bool{}
	for _, step := range []struct {
		change   func()
		searched bool
	}{
		{func() {}, false},
		{func() { roots = []string{"b", "a", "b"} }, true},
		{func() { roots = []string{"a", "b"} }, false},
		{func() { roots = []string{"a", "b", "c"} }, true},
		{func() { obj.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "1"} }, true},
		{func() { obj.Generation = 2 }, true},
		{func() {}, false},
	} {
		step.change()
		p := &pass{obj: obj, adapter: gitKind().wrap(obj), key: gitKind().key(s.Namespace, "net")}
		p.fields = p.adapter.fields()
		r.findPointers(t.Context(), p, stored)
		p.searched()
		mark := obj.Status.Artifact.Metadata[lfsSearched]
		if isNew := mark != "" && !seen[mark]; isNew != step.searched {
			t.Errorf("with %q, the request %q and generation %d it was searched again: %t, want %t", roots, obj.Annotations, obj.Generation, isNew, step.searched)
		}
		seen[mark] = true
	}
}

func TestPullCredentialsOfTheNamespace(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "terrier" || password != s.Namespace {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = "http", s.registry }}).ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	host := strings.TrimPrefix(front.URL, "http://")
	s.options.Pull = func(namespace string) []byte {
		return []byte(`{"auths":{"` + host + `":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("terrier:"+namespace)) + `"}}}`)
	}
	s.repository(func(spec *sourcev1.OCIRepositorySpec) { spec.URL = "oci://" + host + "/net" })
	s.reconcile(s.reconciler(ociKind()))
	s.wantConditions(ready)
}

func TestBucket(t *testing.T) {
	s := newStage(t)
	backend := s3mem.New()
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	modified := map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}
	_, err := backend.PutObject("modules", "main.tf", modified, strings.NewReader("from a bucket"), 13, nil)
	if err == nil {
		t.Fatal("an object went into a bucket that is not there")
	}
	if err := backend.CreateBucket("modules"); err != nil {
		t.Fatal(err)
	}
	if _, err := backend.PutObject("modules", "main.tf", modified, strings.NewReader("from a bucket"), 13, nil); err != nil {
		t.Fatal(err)
	}
	obj := &sourcev1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"},
		Spec: sourcev1.BucketSpec{Endpoint: strings.TrimPrefix(server.URL, "http://"), BucketName: "modules", Insecure: true,
			Interval: metav1.Duration{Duration: time.Hour}, SecretRef: s.secret("s3", map[string]string{"accesskey": "a", "secretkey": "canary"})},
	}
	if err := s.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	s.reconcile(s.reconciler(bucketKind()))
	s.read(obj)
	if content := s.file(obj.Status.Artifact); content != "from a bucket" || !strings.HasPrefix(obj.Status.Artifact.Revision, "sha256:") {
		t.Errorf("the artifact %q holds %q", obj.Status.Artifact.Revision, content)
	}
	obj.Spec.Provider = sourcev1.BucketProviderAzure
	if err := s.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	s.reconcile(s.reconciler(bucketKind()))
	s.read(obj)
	if got, want := message(obj.Status.Conditions, "Stalled"), "not supported: spec.provider azure"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

// TestSetup runs all of it as the program does: watches wake the reconcilers,
// an annotation makes them look again, and events arrive at the API server.
func TestSetup(t *testing.T) {
	s := newStage(t)
	s.manages(func(mgr ctrl.Manager) error {
		//lint:ignore SA1019 core/v1 events are what the API's users read
		s.options.Events = kube.Events{Recorder: mgr.GetEventRecorderFor(manager)}
		return Setup(mgr, s.options)
	})
	first := s.push("latest", "one")
	s.repository(nil)
	revision := func(want string) func(context.Context) error {
		return func(context.Context) error {
			if a := s.get().Status.Artifact; a == nil || a.Revision != "latest@"+want {
				return errors.New("no artifact of the revision")
			}
			return nil
		}
	}
	testkit.Eventually(t, testkit.Patience, "the first revision is there", revision(first))
	second := s.push("latest", "two")
	s.edit(func(o *sourcev1.OCIRepository) {
		o.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "1"}
	})
	testkit.Eventually(t, testkit.Patience, "the second revision is there", revision(second))
	testkit.Eventually(t, testkit.Patience, "an event tells so", func(ctx context.Context) error {
		var events corev1.EventList
		if err := s.Client.List(ctx, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Namespace == s.Namespace && e.Reason == "NewArtifact" {
				return nil
			}
		}
		return errors.New("no event")
	})
}

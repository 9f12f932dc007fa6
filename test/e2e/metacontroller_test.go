package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The real metacontroller, with each kind of its controllers and each version of their
// hooks: stacks are applied once for each change, whatever is restarted; no status goes
// back; and no object is released before it is destroyed.
func TestRealMetacontroller(t *testing.T) {
	t.Parallel()
	needMetacontroller(t)
	p := testkit.Up(t)
	c := p.Cluster(t)
	statuses := watchStatuses(t, c)
	x := newRecorder(t, p, c)
	m := newMetacontroller(t, c)
	mayCall(t, c, x)
	g := testkit.NewGit(t)
	g.Username = ""
	g.Commit(map[string]string{"README": "nothing to plan\n"})
	dir := p.Shared(t)

	var good, failing []hookStack
	for _, composite := range []bool{true, false} {
		for _, version := range []string{"v1", "v2"} {
			for _, etag := range []bool{false, true} {
				by := hookController{composite: composite, version: version, etag: etag, ignore: etag}
				apply(t, c, by.manifest(x.Server))
				good = append(good, newHookStack(t, c, dir, g.URL, by, "good", "exit 0"))
				failing = append(failing, newHookStack(t, c, dir, g.URL, by, "failing", "if ! test -e AT.works; then echo 'the cloud is down' >&2; exit 1; fi"))
			}
		}
	}
	for _, s := range good {
		s.await(t, "Success", "", "")
	}
	for _, s := range failing {
		s.await(t, "Failed", "the cloud is down", "")
		s.touch(t, ".works")
	}
	held := func(s hookStack) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "metacontroller holds "+s.name, func(ctx context.Context) error {
			o, err := s.get(ctx)
			if err == nil && !slices.Contains(o.GetFinalizers(), s.by.finalizer()) {
				err = fmt.Errorf("the finalizers are %v", o.GetFinalizers())
			}
			return err
		})
	}
	for _, s := range slices.Concat(good, failing) {
		held(s)
	}

	t.Log("metacontroller is killed, and misses a change")
	m.kill()
	for _, s := range good {
		s.patch(t, `{"spec":{"variables":{"round":"two"}}}`)
	}
	m.start(t)
	for _, s := range good {
		s.await(t, "Success", "", "")
	}
	t.Log("Terrier is killed")
	if err := errors.Join(p.Kill(), p.Start()); err != nil {
		t.Fatal(err)
	}
	for _, s := range good {
		s.patch(t, `{"spec":{"variables":{"round":"three"}}}`)
	}
	for _, s := range good {
		s.await(t, "Success", "", "")
		if got, want := s.ran(t), "apply one, apply two, apply three"; got != want {
			t.Errorf("%s: the scripts ran as %q, want %q", s.name, got, want)
		}
	}
	for _, s := range failing {
		s.await(t, "Success", "", "")
	}

	t.Run("a hundred equal calls", func(t *testing.T) { hundredCalls(t, x, p, c, dir, g.URL) })
	for i, s := range good {
		if s.by.composite {
			t.Run("a late answer to "+s.by.name(), func(t *testing.T) { lateAnswer(t, x, good[i]) })
		}
	}
	t.Log("all are deleted")
	all := slices.Concat(good, failing)
	for _, s := range all {
		s.delete(t)
	}
	for _, s := range all {
		testkit.Eventually(t, testkit.Patience, s.name+" says why it is not destroyed", func(ctx context.Context) error {
			o, err := s.get(ctx)
			if err != nil {
				return err
			}
			if !slices.Contains(o.GetFinalizers(), s.by.finalizer()) {
				return fmt.Errorf("metacontroller has released it: %v", o.GetFinalizers())
			}
			if message, _, _ := unstructured.NestedString(o.Object, "status", "message"); !strings.Contains(message, "it must not be destroyed yet") {
				return fmt.Errorf("the message is %q", message)
			}
			return nil
		})
	}
	if early := x.all(func(c hookCall) bool { return c.finalized && !strings.HasSuffix(c.name, "-many") }); len(early) > 0 {
		t.Errorf("%s was answered with finalized before its destroy", early[0].name)
	}
	for _, s := range all {
		s.touch(t, ".allow")
	}
	for _, s := range all {
		s.awaitGone(t)
		if got := s.ran(t); !strings.HasSuffix(got, ", destroy") || strings.Count(got, "destroy") != 1 {
			t.Errorf("%s: the scripts ran as %q, want one destroy at the end", s.name, got)
		}
	}
	statuses.judge(t)
	judgeEvents(t, c)
	compareFixtures(t, x, c)
	codes := map[string]int{}
	for _, call := range x.all(func(hookCall) bool { return true }) {
		codes[fmt.Sprint(call.controller, call.at, " ", call.status)]++
	}
	t.Logf("calls: %v", codes)
}

// mayCall gives metacontroller what it needs to call the hooks: the rights of the page,
// a token, and the certificate of the recorder in the place of that of Terrier.
func mayCall(t *testing.T, c *testkit.Cluster, x *recorder) {
	t.Helper()
	c.Apply(t, readHookPage(t).rights)
	token := strings.TrimSpace(c.Kubectl(t, "create", "token", "-n", "metacontroller", "metacontroller-hooks", "--duration=24h"))
	c.Apply(t, `apiVersion: v1
kind: Secret
metadata: {name: terrier-hooks, namespace: metacontroller, annotations: {kubernetes.io/service-account.name: metacontroller-hooks}}
type: kubernetes.io/service-account-token
stringData: {token: "`+token+`"}
`)
	c.Kubectl(t, "-n", "metacontroller", "create", "configmap", "terrier-server", "--from-literal=ca.crt="+certificate(x.Server))
}

// The manifests of the page work as they are, but for the address and the certificate.
func TestManifestsOfTheHooksPage(t *testing.T) {
	t.Parallel()
	needMetacontroller(t)
	p := testkit.Up(t)
	c := p.Cluster(t)
	x := newRecorder(t, p, c)
	newMetacontroller(t, c)
	mayCall(t, c, x)
	here := strings.NewReplacer("https://terrier.terrier-system.svc:8443", x.URL, "terrier.terrier-system.svc:8443", strings.TrimPrefix(x.URL, "https://"),
		"{name: terrier-server, namespace: terrier-system}", "{name: terrier-server, namespace: metacontroller}")
	apply(t, c, here.Replace(readHookPage(t).controllers))
	g := testkit.NewGit(t)
	g.Username = ""
	g.Commit(map[string]string{"README": "nothing to plan\n"})
	s := newHookStack(t, c, p.Shared(t), g.URL, hookController{composite: true, version: "page"}, "stack", "exit 0")
	s.await(t, "Success", "", "")
	testkit.Eventually(t, testkit.Patience, "both controllers hold the stack", func(ctx context.Context) error {
		o, err := s.get(ctx)
		for _, f := range []string{"metacontroller.io/compositecontroller-terraforms", "metacontroller.io/decoratorcontroller-terraforms"} {
			if err == nil && !slices.Contains(o.GetFinalizers(), f) {
				err = fmt.Errorf("the finalizers are %v", o.GetFinalizers())
			}
		}
		return err
	})
	s.touch(t, ".allow")
	s.delete(t)
	s.awaitGone(t)
	if got := s.ran(t); got != "apply one, destroy" {
		t.Errorf("the scripts ran as %q", got)
	}
	judgeEvents(t, c)
}

// judgeEvents fails the test if metacontroller had an error other than the refusal of an
// older status, while Terrier was up.
func judgeEvents(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	var events corev1.EventList
	if err := c.Client.List(t.Context(), &events, client.InNamespace(c.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		switch {
		case e.Reason != "SyncError":
		case strings.Contains(e.Message, "an older status must not replace a newer one"):
			t.Logf("%s (%d times): %s", e.InvolvedObject.Name, e.Count, e.Message)
		case strings.Contains(e.Message, "unsupported status code: 502"): // of the recorder, while Terrier is down
		default:
			t.Errorf("%s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}

// hundredCalls sends a hundred equal requests about a stack whose first run goes on.
func hundredCalls(t *testing.T, x *recorder, p *testkit.Platform, c *testkit.Cluster, dir, repository string) {
	by := hookController{composite: true, version: "v2"}
	s := newHookStack(t, c, dir, repository, by, "many", "while ! test -e AT.go; do sleep 0.1; done")
	testkit.Eventually(t, testkit.Patience, "the script runs", func(context.Context) error {
		if s.ran(t) == "" {
			return errors.New("it has not begun")
		}
		return nil
	})
	var call hookCall
	testkit.Eventually(t, testkit.Patience, "metacontroller asks about "+s.name, func(context.Context) error {
		calls := x.all(func(c hookCall) bool { return c.name == s.name && c.at == "/sync" && c.status == http.StatusOK })
		if len(calls) == 0 {
			return errors.New("it has not asked")
		}
		call = calls[len(calls)-1]
		return nil
	})
	call.header.Del("If-None-Match")
	if answers := callHundredTimes(&http.Client{Transport: trusting(t, c)}, p.HTTP+call.at, call.header, call.request); answers[http.StatusOK] == 0 || answers[http.StatusOK]+answers[http.StatusTooManyRequests] != 100 {
		t.Errorf("the answers are %v, want 200 and 429", answers)
	}
	s.touch(t, ".go")
	s.await(t, "Success", "", "")
	s.touch(t, ".allow")
	if got := s.ran(t); got != "apply one" {
		t.Errorf("the scripts ran as %q, want one apply", got)
	}
	s.delete(t)
	s.awaitGone(t)
}

// callHundredTimes sends a hundred equal requests at once, and counts the answers by their
// status; 0 is none.
func callHundredTimes(h *http.Client, url string, header http.Header, body []byte) map[int]int {
	call := func() (int, error) {
		req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header = header.Clone()
		resp, err := h.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, errors.Join(err, resp.Body.Close())
	}
	codes := make(chan int, 100)
	for range cap(codes) {
		go func() {
			code, err := call()
			if err != nil {
				code = 0
			}
			codes <- code
		}()
	}
	answers := map[int]int{}
	for range cap(codes) {
		answers[<-codes]++
	}
	return answers
}

// lateAnswer has metacontroller get an answer after the stack was applied again: it
// then writes a status that is older than the one that the object has.
func lateAnswer(t *testing.T, x *recorder, s hookStack) {
	release := x.hold(s.by.name(), s.name)
	s.patch(t, `{"metadata":{"labels":{"poke":"1"}}}`)
	<-x.stuck
	before := s.ran(t)
	s.patch(t, `{"spec":{"variables":{"round":"late"}}}`)
	s.await(t, "Success", "", "")
	released := len(x.all(func(c hookCall) bool { return c.name == s.name && answered(c) }))
	release()
	testkit.Eventually(t, testkit.Patience, "metacontroller asks again", func(context.Context) error {
		if now := len(x.all(func(c hookCall) bool { return c.name == s.name && answered(c) })); now <= released {
			return errors.New("it has not asked")
		}
		return nil
	})
	s.await(t, "Success", "", "")
	if got := s.ran(t); got != before+", apply late" {
		t.Errorf("%s: the scripts ran as %q, want %q and one apply more", s.name, got, before)
	}
}

func certificate(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// hookPage is what docs/metacontroller.md has users apply.
type hookPage struct{ rights, controllers string }

func readHookPage(t *testing.T) hookPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Repository(t), "docs/metacontroller.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(mark string) string {
		_, after, _ := strings.Cut(string(text), "<!-- test: "+mark+" -->\n```yaml\n")
		yaml, _, found := strings.Cut(after, "```")
		if !found {
			t.Fatalf("docs/metacontroller.md has no block %q", mark)
		}
		return yaml
	}
	return hookPage{block("rights"), block("composite") + "---\n" + block("decorator")}
}

// fixtures are the requests of metacontroller that tests of the hooks are made of.
const fixtures = "internal/web/metacontroller/testdata"

// neutral is a request without what differs from one machine and one moment to the next.
func neutral(t *testing.T, call hookCall, c *testkit.Cluster, server string) map[string]any {
	t.Helper()
	text := strings.NewReplacer(server, "https://terrier.terrier-system.svc:8443", strings.TrimPrefix(server, "https://"), "terrier.terrier-system.svc:8443",
		call.uid, "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", `"name":"`+call.name+`"`, `"name":"example-terraformconfig"`, c.Namespace, "default").Replace(string(call.request))
	text = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(text, "2026-08-13T10:00:00Z")
	var request map[string]any
	if err := json.Unmarshal([]byte(text), &request); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"controller", "parent", "object"} {
		o, has := request[of].(map[string]any)
		if !has {
			continue
		}
		meta := o["metadata"].(map[string]any)
		delete(meta, "managedFields")
		delete(meta, "annotations")
		meta["resourceVersion"], meta["generation"] = "7", 1.0
		if of == "controller" {
			meta["uid"] = "0b7c2f4e-5b0a-4a57-9c55-3b1f0e6c8d11"
			continue
		}
		if _, has := o["status"]; has {
			o["status"] = map[string]any{"state": "Pending", "observedGeneration": 1.0}
		}
		o["spec"].(map[string]any)["scripts"] = map[string]any{"apply": map[string]any{"inline": "terraform apply -auto-approve\n"}}
		o["spec"].(map[string]any)["gitRepo"] = map[string]any{"url": "https://github.com/example/terraform-repo/terraform", "branch": "main"}
		finalizers, _ := meta["finalizers"].([]any)
		slices.SortFunc(finalizers, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		meta["labels"] = map[string]any{"hooks": call.controller}
	}
	return request
}

// compareFixtures compares the fixtures with what metacontroller sends. With the flag
// -update it writes them.
func compareFixtures(t *testing.T, x *recorder, c *testkit.Cluster) {
	for _, kind := range []string{"composite", "decorator"} {
		for _, version := range []string{"v1", "v2"} {
			for _, hook := range []string{"sync", "finalize", "customize"} {
				calls := x.all(func(c hookCall) bool {
					return c.controller == kind+"-"+version && c.at == "/"+hook && strings.HasSuffix(c.name, "-good") &&
						(hook == "customize" || bytes.Contains(c.request, []byte(`"status":`)))
				})
				if len(calls) == 0 {
					t.Errorf("metacontroller has not called %s of %s %s", hook, kind, version)
					continue
				}
				got := neutral(t, calls[0], c, x.URL)
				path := filepath.Join(testkit.Repository(t), fixtures, kind+"-"+hook+"-"+version+".json")
				if *update {
					text, err := json.MarshalIndent(got, "", "  ")
					if err == nil {
						err = os.WriteFile(path, append(text, '\n'), 0o644)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				var want map[string]any
				text, err := os.ReadFile(path)
				if err == nil {
					err = json.Unmarshal(text, &want)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s is not what metacontroller sends: run the test with -update (-want +got):\n%s", path, diff)
				}
			}
		}
	}
}

// apply applies manifests as users do, and refuses fields that metacontroller does not
// know.
func apply(t *testing.T, c *testkit.Cluster, manifests string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "apply", "--validate=strict", "-f", path)
}

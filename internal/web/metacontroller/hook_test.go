package metacontroller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

const uid = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"

// world is the one object that the API server has, as Terrier left it.
type world struct {
	mu    sync.Mutex
	o     Observed
	err   error
	reads int
}

func (x *world) read(_ context.Context, k Key) (Observed, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reads++
	if want := (Key{"alustan.io/v1alpha1", "Terraform", "default", "example-terraformconfig", uid}); k != want {
		return Observed{}, fault.New(fault.Missing, "", errors.New("no such object"))
	}
	return x.o, x.err
}

func (x *world) is(change func(*Observed)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(&x.o)
}

func serve(t *testing.T, x *world) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(NewHandler(x.read, slog.New(slog.DiscardHandler)))
	t.Cleanup(s.Close)
	return s
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// driver does to one object what metacontroller does: it calls a hook, reads the reply as
// its version of the hook does, and applies it.
type driver struct {
	t       *testing.T
	url     string
	version string
	kind    string // composite or decorator
	world   *world

	etag     string
	kept     []byte
	resync   float64
	released bool // its finalizer is off
}

// reply has the fields that metacontroller knows.
type reply struct {
	Status             map[string]any   `json:"status"`
	Children           []map[string]any `json:"children"`
	Labels             map[string]any   `json:"labels"`
	Annotations        map[string]any   `json:"annotations"`
	Attachments        []map[string]any `json:"attachments"`
	ResyncAfterSeconds float64          `json:"resyncAfterSeconds"`
	Finalized          bool             `json:"finalized"`
}

// call calls a hook, and returns false if it is to call again later.
func (d *driver) call(hook string) bool {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.url+"/"+hook, bytes.NewReader(fixture(d.t, d.kind+"-"+hook+"-"+d.version)))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if d.etag != "" {
		req.Header.Set("If-None-Match", d.etag)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		d.etag, d.kept = resp.Header.Get("ETag"), body
	case http.StatusNotModified:
		body = d.kept
	case http.StatusTooManyRequests:
		if resp.Header.Get("Retry-After") == "" {
			d.t.Errorf("%s is answered with 429 and no Retry-After", hook)
		}
		return false
	default:
		d.t.Fatalf("%s is answered with %s: %s", hook, resp.Status, body)
	}
	var r reply
	read := json.NewDecoder(bytes.NewReader(body))
	if d.version == "v2" {
		read.DisallowUnknownFields()
	}
	if err := read.Decode(&r); err != nil {
		d.t.Fatalf("%s is answered with %s: %v", hook, body, err)
	}
	if len(r.Children)+len(r.Attachments)+len(r.Labels)+len(r.Annotations) > 0 {
		d.t.Errorf("%s asks for more than there is: %s", hook, body)
	}
	d.resync, d.released = r.ResyncAfterSeconds, hook == "finalize" && r.Finalized
	d.apply(r)
	return true
}

// apply writes the status: a composite replaces the whole of it, and adds the generation.
func (d *driver) apply(r reply) {
	d.t.Helper()
	if d.kind == "decorator" {
		if r.Status != nil {
			d.t.Errorf("a decorator is answered with the status %v, want none", r.Status)
		}
		return
	}
	if r.Status == nil {
		r.Status = map[string]any{}
	}
	r.Status["observedGeneration"] = 1.0
	status, err := json.Marshal(r.Status)
	if err != nil {
		d.t.Fatal(err)
	}
	d.world.is(func(o *Observed) { o.Status = status })
}

// The life of an object, with each kind of controller and each version of its hooks: no
// reply takes anything from the status that Terrier has written, and the object is
// released after Terrier has destroyed the stack.
func TestAnObjectLivesWithMetacontroller(t *testing.T) {
	for _, kind := range []string{"composite", "decorator"} {
		for _, version := range []string{"v1", "v2"} {
			t.Run(kind+" "+version, func(t *testing.T) {
				x := &world{o: Observed{UID: uid, Generation: 1}}
				d := &driver{t: t, url: serve(t, x).URL, version: version, kind: kind, world: x}
				if again := d.call("sync"); again != (kind == "decorator") {
					t.Errorf("an object that Terrier has not seen: answered %v", again)
				}
				write := func(status string, running bool) {
					t.Helper()
					x.is(func(o *Observed) { o.Status, o.Seen, o.Held, o.Running = json.RawMessage(status), true, true, running })
				}
				same := func(status string) {
					t.Helper()
					var got, want any
					if err := errors.Join(json.Unmarshal(x.o.Status, &got), json.Unmarshal([]byte(status), &want)); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("the status (-want +got):\n%s", diff)
					}
				}
				running := `{"state":"Pending","message":"The apply script is running","observedGeneration":1,"terrier":{"failures":0}}`
				write(running, true)
				if !d.call("sync") || d.resync != 15 {
					t.Errorf("while a run goes on, metacontroller asks again after %v seconds, want 15", d.resync)
				}
				same(running)
				applied := `{"state":"Success","message":"Applied revision main@sha1:1234","observedGeneration":1,"terrier":{"applied":"x"}}`
				write(applied, false)
				for range 2 { // the second answer is the first
					if !d.call("sync") || d.resync != 0 {
						t.Errorf("of a settled object, metacontroller asks again after %v seconds, want never", d.resync)
					}
					same(applied)
				}
				x.is(func(o *Observed) { o.Deleting, o.Seen = true, false })
				if again := d.call("finalize"); again != (kind == "decorator") || d.released {
					t.Errorf("before Terrier has seen the deletion: answered %v, released %v", again, d.released)
				}
				x.is(func(o *Observed) { o.Seen = true })
				if !d.call("finalize") || d.released || d.resync != 15 {
					t.Errorf("before the destroy has ended: released %v, asked again after %v seconds", d.released, d.resync)
				}
				x.is(func(o *Observed) { o.Held, o.Seen = false, false })
				if !d.call("finalize") || !d.released {
					t.Error("after the destroy the object is not released")
				}
				x.mu.Lock()
				x.err = fault.New(fault.Missing, "", errors.New("gone"))
				x.mu.Unlock()
				if d.released = false; !d.call("finalize") || !d.released {
					t.Error("an object that is gone is not released")
				}
			})
		}
	}
}

func post(t *testing.T, url, path string, body []byte, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestHooksBelieveTheNameAndTheUIDAlone(t *testing.T) {
	x := &world{o: Observed{UID: uid, Generation: 1, Seen: true, Held: true, Status: json.RawMessage(`{"state":"Success"}`)}}
	s := serve(t, x)
	sync := string(fixture(t, "composite-sync-v1"))
	replace := func(what, with string) []byte { return []byte(strings.Replace(sync, what, with, 1)) }
	for name, tt := range map[string]struct {
		path string
		body []byte
		want int
	}{
		"an older generation": {SyncPath, replace(`"generation": 1,
      "labels"`, `"generation": 0,
      "labels"`), http.StatusTooManyRequests},
		"an object of a former UID":     {SyncPath, replace(uid, "0"), http.StatusTooManyRequests},
		"a name that is a path":         {SyncPath, replace("example-terraformconfig", "../secrets"), http.StatusBadRequest},
		"another namespace":             {SyncPath, replace(`"namespace": "default"`, `"namespace": "Kube System"`), http.StatusBadRequest},
		"no UID":                        {SyncPath, replace(uid, ""), http.StatusBadRequest},
		"a kind that is a path":         {SyncPath, replace("alustan.io/v1alpha1\",\n    \"kind\": \"Terraform\"", "v1/../x\",\n    \"kind\": \"Terraform\""), http.StatusBadRequest},
		"neither a parent nor a object": {SyncPath, []byte(`{}`), http.StatusBadRequest},
		"a parent and an object":        {SyncPath, replace(`"parent": {`, `"object": {"kind": "Terraform"}, "parent": {`), http.StatusBadRequest},
		"a parent that is a list":       {SyncPath, []byte(`{"parent": []}`), http.StatusBadRequest},
		"nothing":                       {SyncPath, nil, http.StatusBadRequest},
		"half of it":                    {SyncPath, []byte(sync[:len(sync)/2]), http.StatusBadRequest},
		"a list without an end":         {SyncPath, bytes.Repeat([]byte("["), 1<<20), http.StatusBadRequest},
		"a name that is a number":       {SyncPath, replace(`"example-terraformconfig"`, "7"), http.StatusBadRequest},
		"no JSON":                       {SyncPath, []byte(`parent: {}`), http.StatusBadRequest},
		"a body without an end":         {SyncPath, bytes.Repeat([]byte(" "), MaxBody+1), http.StatusRequestEntityTooLarge},
		"a spec that was made up":       {SyncPath, replace("terraform apply -auto-approve", "curl evil.example"), http.StatusOK},
		"related objects, version 1":    {CustomizePath, fixture(t, "composite-customize-v1"), http.StatusOK},
		"related objects, version 2":    {CustomizePath, fixture(t, "composite-customize-v2"), http.StatusOK},
		"of a decorator, version 1":     {CustomizePath, fixture(t, "decorator-customize-v1"), http.StatusOK},
		"of a decorator, version 2":     {CustomizePath, fixture(t, "decorator-customize-v2"), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if got := post(t, s.URL, tt.path, tt.body); got.StatusCode != tt.want {
				t.Errorf("answered with %s, want %d", got.Status, tt.want)
			}
		})
	}
	x.err = fault.New(fault.Invalid, "", errors.New("ConfigMap is no kind of stack"))
	if got := post(t, s.URL, SyncPath, []byte(sync)); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a kind that is no stack: %s, want 422", got.Status)
	}
	x.err = errors.New("connection refused")
	got := post(t, s.URL, SyncPath, []byte(sync))
	if text, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusTooManyRequests || bytes.Contains(text, []byte("refused")) {
		t.Errorf("an API server that does not answer: %s %s, want 429 without details", got.Status, text)
	}
}

// An object whose labels do not fit any more is released, and not destroyed.
func TestAnObjectThatIsNotDeletedIsReleased(t *testing.T) {
	x := &world{o: Observed{UID: uid, Generation: 1, Seen: true, Held: true}}
	d := &driver{t: t, url: serve(t, x).URL, version: "v2", kind: "decorator", world: x}
	if !d.call("finalize") || !d.released {
		t.Error("an object that is not deleted is not released")
	}
}

func TestEqualAnswersAreNotSentTwice(t *testing.T) {
	x := &world{o: Observed{UID: uid, Generation: 1, Seen: true, Status: json.RawMessage(`{"state":"Success"}`)}}
	s := serve(t, x)
	body := fixture(t, "composite-sync-v2")
	first := post(t, s.URL, SyncPath, body)
	tag := first.Header.Get("ETag")
	if again := post(t, s.URL, SyncPath, body, "If-None-Match", tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("an equal answer: %s, want 304", again.Status)
	}
	x.is(func(o *Observed) { o.Status = json.RawMessage(`{"state":"Failed"}`) })
	if again := post(t, s.URL, SyncPath, body, "If-None-Match", tag); again.StatusCode != http.StatusOK || again.Header.Get("ETag") == tag {
		t.Errorf("another answer: %s with the tag %s, want 200 and another tag", again.Status, tag)
	}
}

func TestMoreHooksThanTerrierAnswersComeLater(t *testing.T) {
	x := &world{o: Observed{UID: uid, Generation: 1, Seen: true}}
	s := serve(t, x)
	body := fixture(t, "composite-sync-v1")
	x.mu.Lock() // no read ends
	var calls sync.WaitGroup
	statuses := make(chan int, inFlight+1)
	for range inFlight + 1 {
		calls.Go(func() {
			resp, err := http.Post(s.URL+SyncPath, "application/json", bytes.NewReader(body))
			if err != nil {
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		})
	}
	if got := <-statuses; got != http.StatusTooManyRequests {
		t.Errorf("the first answer is %d, want 429", got)
	}
	x.mu.Unlock()
	calls.Wait()
	for range inFlight {
		if got := <-statuses; got != http.StatusOK {
			t.Errorf("an answer is %d, want 200", got)
		}
	}
	if x.reads != inFlight {
		t.Errorf("%d reads, want %d", x.reads, inFlight)
	}
}

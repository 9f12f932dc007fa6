package controller

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// registryOf makes images when the test says so.
type registryOf struct {
	mu    sync.Mutex
	asked []image.Wanted
	may   chan error

	pruned atomic.Bool // what runs need of an image is there no more
}

func (r *registryOf) Ensure(ctx context.Context, w image.Wanted) (image.Made, error) {
	r.mu.Lock()
	r.asked = append(r.asked, w)
	r.mu.Unlock()
	select {
	case err := <-r.may:
		return image.Made{Ref: w.Name + "@" + w.Source}, err
	case <-ctx.Done():
		return image.Made{}, ctx.Err()
	}
}

func (r *registryOf) Holds(image.Made) bool { return !r.pruned.Load() }

// A stack waits for its image, sees once why it was not made, and has it made again;
// another revision is another image.
func TestImagesAreMadeBesideTheReconciles(t *testing.T) {
	now := time.Unix(0, 0)
	r := &registryOf{may: make(chan error)}
	im := newImaging(r, func() time.Time { return now })
	im.pause = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- im.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w := image.Wanted{Name: "registry.example/net", Namespace: "a", Source: "sha256:1", Archive: "/a"}
	var m *making
	none := image.Made{}
	// settled waits until the image is no more on its way.
	settled := func() (image.Made, bool, error) {
		t.Helper()
		for {
			made, pending, begin, err := im.find(m, w)
			if !pending {
				return made, begin, err
			}
			if err := t.Context().Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, begin, err := settled(); !begin || err != nil {
		t.Fatalf("a stack without an image: begin %v, %v", begin, err)
	}
	m = im.begin(w, none)
	if _, pending, begin, _ := im.find(m, w); !pending || begin {
		t.Errorf("while it is made: pending %v, begin %v", pending, begin)
	}
	refused := errors.New("refused")
	r.may <- refused
	if _, begin, err := settled(); !errors.Is(err, refused) || begin {
		t.Errorf("after a failure: begin %v, %v, want the error", begin, err)
	}
	if _, begin, err := settled(); err != nil || !begin {
		t.Errorf("at the next try: begin %v, %v, want another attempt", begin, err)
	}
	m = im.begin(w, none)
	r.may <- nil
	if made, begin, err := settled(); made.Ref != "registry.example/net@sha256:1" || begin || err != nil {
		t.Errorf("after it was made: %v, begin %v, %v", made, begin, err)
	}
	w.Archive = "/another/place/of/the/same"
	if made, begin, _ := settled(); made == none || begin {
		t.Errorf("the same content: %v, begin %v", made, begin)
	}
	now = now.Add(imageTrusted + time.Second)
	made, begin, err := settled()
	if !begin || made == none || err != nil {
		t.Errorf("an image that was made long ago: %v, begin %v, %v, want it, and to look for it again", made, begin, err)
	}
	m = im.begin(w, made)
	if got, pending, begin, err := im.find(m, w); got != made || pending || begin || err != nil {
		t.Errorf("while it is looked for again: %v, pending %v, begin %v, %v, want the image", got, pending, begin, err)
	}
	r.may <- refused
	for m.stillOn(im) {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got, begin, err := settled(); got != made || !begin || err != nil {
		t.Errorf("after its registry did not answer: %v, begin %v, %v, want the image, and another try", got, begin, err)
	}
	m = im.begin(w, made)
	r.may <- nil
	for m.stillOn(im) {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.pruned.Store(true)
	if got, begin, err := settled(); got != none || !begin || err != nil {
		t.Errorf("after its code is gone: %v, begin %v, %v, want to wait for another", got, begin, err)
	}
	r.pruned.Store(false)
	m = im.begin(w, none)
	for range 3 { // asked again and again, and no other image waits for it
		r.may <- image.ErrBuilding
	}
	r.may <- nil
	if got, begin, err := settled(); got != made || begin || err != nil {
		t.Errorf("after it was built elsewhere: %v, begin %v, %v", got, begin, err)
	}
	w.Source = "sha256:2"
	if _, begin, _ := settled(); !begin {
		t.Error("another revision has the image of the one before")
	}
}

// stillOn reports whether an image is on its way.
func (m *making) stillOn(im *imaging) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return m.ended.IsZero()
}

func TestOnlyRunsThatStartFromAnImageWaitForIt(t *testing.T) {
	for name, tt := range map[string]struct {
		kind     stack.RunKind
		cause    stack.Cause
		deleting bool
		waits    bool
	}{
		"a plan":                   {kind: stack.PlanRun, waits: true},
		"a check":                  {kind: stack.CheckRun, waits: true},
		"a destroy":                {kind: stack.DestroyRun},
		"the plan of a destroy":    {kind: stack.PlanRun, cause: stack.Cause{Destroy: true}},
		"a run of a deleted stack": {kind: stack.PlanRun, deleting: true},
		"the command of a person":  {kind: stack.BreakGlassRun},
	} {
		t.Run(name, func(t *testing.T) {
			im := newImaging(&registryOf{}, time.Now)
			p := &pass{entry: &entry{}, wanted: &image.Wanted{Name: "registry.example/net"}}
			p.st.Configuration.Image, p.o.Deleting = &stack.Image{Name: "registry.example/net"}, tt.deleting
			waits, err := im.findImage(t.Context(), p, tt.kind, tt.cause, nil)
			if (waits != "") != tt.waits || err != nil || (p.entry.image != nil) != tt.waits {
				t.Errorf("the run waits for %q, %v, want that it waits = %v", waits, err, tt.waits)
			}
		})
	}
}

func TestTheImageOfAStackIsInItsPod(t *testing.T) {
	job := func(kind stack.RunKind, template string) *runner.Job {
		return &runner.Job{Kind: kind, Pod: &runner.Pod{Template: json.RawMessage(template)}}
	}
	const ref = "registry.example/net@sha256:1"
	login := &stack.KeyRef{Name: "hub", Key: "cred"}
	for name, tt := range map[string]struct {
		job   *runner.Job
		ref   string
		login *stack.KeyRef
		want  string
	}{
		"no template": {job(stack.ApplyRun, ""), ref, login,
			`{"spec":{"containers":[{"image":"registry.example/net@sha256:1","name":"terrier-runner"}],"imagePullSecrets":[{"name":"hub"}]}}`},
		"a template of the stack": {job(stack.PlanRun, `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"terrier-runner","env":[]}],"imagePullSecrets":[{"name":"own"}]}}`), ref, login,
			`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"env":[],"image":"registry.example/net@sha256:1","name":"terrier-runner"}],"imagePullSecrets":[{"name":"own"},{"name":"hub"}]}}`},
		"no credentials": {job(stack.CheckRun, ""), ref, nil, `{"spec":{"containers":[{"image":"registry.example/net@sha256:1","name":"terrier-runner"}]}}`},
		"a destroy":      {job(stack.DestroyRun, ""), ref, login, ""},
		"no image":       {job(stack.ApplyRun, ""), "", login, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := string(tt.job.Pod.Template)
			made := image.Made{Ref: tt.ref}
			got, err := fromImage(tt.job, made, tt.login)
			if err != nil || string(got.Pod.Template) != tt.want {
				t.Errorf("the template is %s, %v, want %s", got.Pod.Template, err, tt.want)
			}
			if string(tt.job.Pod.Template) != before {
				t.Error("the job of the snapshot has changed")
			}
		})
	}
}

// A process has the code that was read back from the registry. What is kept of the job
// names the source.
func TestTheCodeOfAnImageIsInItsProcess(t *testing.T) {
	made := image.Made{Ref: "registry.example/net@sha256:1", Code: "sha256:2"}
	for name, tt := range map[string]struct {
		kind stack.RunKind
		from string
		made image.Made
		want string
	}{
		"a plan":             {stack.PlanRun, "sha256:3", made, "sha256:2"},
		"a destroy":          {stack.DestroyRun, "sha256:3", made, "sha256:3"},
		"no image":           {stack.PlanRun, "sha256:3", image.Made{}, "sha256:3"},
		"a run without code": {stack.CheckRun, "", made, ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := &runner.Job{Kind: tt.kind, Tree: runner.Tree{Archive: tt.from, Digest: tt.from}}
			got, err := fromImage(job, tt.made, nil)
			if err != nil || got.Tree.Archive != tt.want || got.Tree.Digest != tt.from {
				t.Errorf("the run has %+v, %v, want the archive %q", got.Tree, err, tt.want)
			}
			if job.Tree.Archive != tt.from {
				t.Error("the job of the snapshot has changed")
			}
		})
	}
}

// Registries that do not answer hold up the images of their own namespace.
func TestANamespaceDoesNotHaveAllPlacesForImages(t *testing.T) {
	im := newImaging(&registryOf{}, time.Now)
	for range 2 * imagesAtOnce {
		im.begin(image.Wanted{Name: "tarpit.example/a", Namespace: "hostile"}, image.Made{})
	}
	im.begin(image.Wanted{Name: "registry.example/b", Namespace: "apps"}, image.Made{})
	var began []*making
	got := ""
	for m, ok := im.places.Next(nil); ok; m, ok = im.places.Next(nil) {
		began = append(began, m)
		got += m.wanted.Namespace + " "
	}
	if want := "hostile apps hostile "; got != want {
		t.Errorf("being made are those of %s, want %s", got, want)
	}
	for _, m := range began {
		im.end(m, image.Made{}, nil)
	}
	if n := im.places.Busy(); n != 0 {
		t.Errorf("after their end %d count as being made", n)
	}
	if m, ok := im.places.Next(nil); !ok || m.wanted.Namespace != "hostile" {
		t.Errorf("the next one is %+v", m)
	}
}

// Two namespaces with many images have all places, and the next place is for a third one.
func TestTwoNamespacesKeepNoThirdFromItsImages(t *testing.T) {
	im := newImaging(&registryOf{}, time.Now)
	for range 10 {
		im.begin(image.Wanted{Name: "tarpit.example/a", Namespace: "a"}, image.Made{})
		im.begin(image.Wanted{Name: "tarpit.example/b", Namespace: "b"}, image.Made{})
	}
	var began []*making
	for m, ok := im.places.Next(nil); ok; m, ok = im.places.Next(nil) {
		began = append(began, m)
	}
	im.begin(image.Wanted{Name: "registry.example/late", Namespace: "late"}, image.Made{})
	if len(began) != imagesAtOnce {
		t.Fatalf("%d are made at once, want %d", len(began), imagesAtOnce)
	}
	im.end(began[0], image.Made{}, nil)
	if m, ok := im.places.Next(nil); !ok || m.wanted.Namespace != "late" {
		t.Errorf("the next one is %+v, want that of the third namespace", m)
	}
}

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/share"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Images makes images of stacks, which may take minutes.
type Images interface {
	Ensure(context.Context, image.Wanted) (image.Made, error)
	Holds(image.Made) bool // whether runs find there what they need of it
}

// How many images are made at once, and of one namespace, for how long one counts as being in its
// registry, and when a stack looks for its image again while it is made. A registry that a stack
// names may take ten minutes not to answer, so no namespace has all places.
const (
	imagesAtOnce       = 4
	imagesPerNamespace = 2
	imageTrusted       = 10 * time.Minute
	imageRecheck       = 2 * time.Second
)

// imaging makes images beside the reconciles. The entry of a stack has the one that it
// waits for, or has. What is in it is lost when the process ends: the next one finds the
// image in the registry.
type imaging struct {
	images Images
	now    func() time.Time
	more   chan struct{} // holds one: there may be something to begin
	pause  time.Duration // before it is asked again for what is built elsewhere

	places *share.Places[*making]

	mu sync.Mutex // of what becomes of them
}

// making is one image on its way.
type making struct {
	wanted image.Wanted
	ended  time.Time // zero until then
	made   image.Made
	known  image.Made // what the same image was when it was made before; zero if it never was
	err    error
	told   bool // the stack has shown the error, and waits before the next try
}

// newImaging returns nil if no images are made.
func newImaging(images Images, now func() time.Time) *imaging {
	if images == nil {
		return nil
	}
	return &imaging{images: images, now: now, more: make(chan struct{}, 1), pause: imageRecheck, places: share.New[*making](share.Bounds{All: imagesAtOnce, Most: imagesPerNamespace})}
}

// same reports whether two images have one content and one place.
func (m *making) same(w image.Wanted) bool {
	return m.wanted.Name == w.Name && m.wanted.Namespace == w.Namespace && m.wanted.Source == w.Source && m.wanted.Revision == w.Revision
}

// find returns the image, or the error that making it ended with. Pending is true while it
// is made, begin if it has to be. The stack may have none yet. An image that was made is
// used while it is looked for again, and also if its registry does not answer then.
func (im *imaging) find(m *making, w image.Wanted) (made image.Made, pending, begin bool, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	none := image.Made{}
	switch {
	case m == nil || !m.same(w):
		return none, false, true, nil
	case m.ended.IsZero():
		return m.known, m.known == none, false, nil
	case m.err != nil && m.known != none && im.images.Holds(m.known):
		return m.known, false, true, nil
	case m.err != nil && !m.told:
		m.told = true
		return none, false, false, m.err
	case m.err != nil, !im.images.Holds(m.made):
		return none, false, true, nil
	default:
		return m.made, false, im.now().Sub(m.ended) > imageTrusted, nil
	}
}

// begin has an image made, or looked for again that is known.
func (im *imaging) begin(w image.Wanted, known image.Made) *making {
	m := &making{wanted: w, known: known}
	im.wait(m)
	return m
}

func (im *imaging) wait(m *making) {
	im.places.Wait(m.wanted.Namespace, m)
	im.signal()
}

func (im *imaging) signal() {
	select {
	case im.more <- struct{}{}:
	default:
	}
}

// run makes images until ctx ends, and waits for those that are being made.
func (im *imaging) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		for m, ok := im.places.Next(nil); ok; m, ok = im.places.Next(nil) {
			all.Go(func() {
				made, err := im.images.Ensure(ctx, m.wanted)
				if errors.Is(err, image.ErrBuilding) {
					im.again(m)
					return
				}
				im.end(m, made, err)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-im.more:
		}
	}
}

// free gives the place of an image to the next one.
func (im *imaging) free(m *making) {
	im.places.End(m.wanted.Namespace)
	im.signal()
}

func (im *imaging) end(m *making, made image.Made, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.free(m)
	m.ended, m.made, m.err = im.now(), made, err
	m.wanted.Keys, m.wanted.Login = nil, nil
}

// again asks again later for an image that is built elsewhere. Meanwhile others have its turn.
func (im *imaging) again(m *making) {
	im.free(m)
	time.AfterFunc(im.pause, func() { im.wait(m) })
}

// wantImage says which image the runs of a stack start from. Nothing of a plan depends on
// it: it is the code that the plan is of. So only a run that is about to start needs it.
func (p *pass) wantImage() {
	asked := p.st.Configuration.Image
	if asked == nil || p.in.archive == "" {
		return
	}
	p.wanted = &image.Wanted{
		Name: asked.Name, Namespace: p.obj.GetNamespace(), Archive: p.in.archive,
		Source: p.o.PlanInputs.Source, Revision: p.o.PlanInputs.Revision,
	}
}

// findImage finds the image of a run that is about to start, or says what the run waits for.
// A destroy, a run of a deleted stack and the command of a person need none: the registry
// may be gone with everything else.
func (im *imaging) findImage(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause, read input.Reader) (waits string, err error) {
	if im == nil || p.wanted == nil || p.o.Deleting || cause.Destroy || kind == stack.DestroyRun || kind == stack.BreakGlassRun {
		return "", nil
	}
	w := *p.wanted
	made, pending, begin, err := im.find(p.entry.image, w)
	if err != nil {
		return "", fault.New(fault.Of(err), string(stack.SourceFailed), fmt.Errorf("building and pushing the image %s: %w", w.Name, err))
	}
	if begin {
		w.Keys, w.Login, err = imageKeys(ctx, p, p.st.Configuration.Image.Login, read)
		switch {
		case err == nil:
			p.entry.image = im.begin(w, made)
			pending = made == image.Made{}
		case made == image.Made{}:
			return "", fault.New(fault.Of(err), string(stack.InputsFailed), fmt.Errorf("the credentials for the image %s: %w", w.Name, err))
		}
	}
	p.image = made
	if pending {
		waits = "building and pushing the image " + w.Name
	}
	return waits, nil
}

// imageKeys reads the credentials for an image, and the text that has them: under the key that
// the stack names, else under that of a Docker configuration.
func imageKeys(ctx context.Context, p *pass, login *stack.KeyRef, read input.Reader) (*source.Keyring, []byte, error) {
	if login == nil {
		return nil, nil, nil
	}
	data, _, err := read.Read(ctx, stack.Ref{Kind: "Secret", Namespace: p.obj.GetNamespace(), Name: login.Name})
	if err != nil {
		return nil, nil, err
	}
	for _, key := range []string{cmp.Or(login.Key, corev1.DockerConfigJsonKey), corev1.DockerConfigJsonKey} {
		if config := data[key]; len(config) > 0 {
			keys, err := source.ParseKeyring(config)
			return keys, config, err
		}
	}
	return nil, nil, fault.New(fault.Missing, "", fmt.Errorf("the Secret %q has neither %q nor %q: add a Docker configuration there", login.Name, login.Key, corev1.DockerConfigJsonKey))
}

// fromImage is a job that starts from an image: its pod does, which the credentials of the
// push let the node pull; a process has the code that was read back from the registry. A
// destroy needs no image of the stack: the registry may be gone with everything else.
func fromImage(job *runner.Job, made image.Made, login *stack.KeyRef) (*runner.Job, error) {
	if made == (image.Made{}) || job.Kind == stack.DestroyRun {
		return job, nil
	}
	if job.Pod == nil {
		if job.Tree.Archive == "" {
			return job, nil // it runs no code
		}
		out := *job
		out.Tree.Archive = made.Code
		return &out, nil
	}
	patch := map[string]any{}
	if len(job.Pod.Template) > 0 {
		if err := json.Unmarshal(job.Pod.Template, &patch); err != nil {
			return nil, fmt.Errorf("reading the template of the pod: %w", err)
		}
	}
	spec, _ := patch["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
	}
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		containers = []any{map[string]any{"name": stack.PodContainer}}
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return nil, errors.New("reading the template of the pod: its first container is no object")
	}
	container["image"] = made.Ref
	spec["containers"], patch["spec"] = containers, spec
	if login != nil {
		secrets, _ := spec["imagePullSecrets"].([]any)
		spec["imagePullSecrets"] = append(secrets, map[string]any{"name": login.Name})
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	out, pod := *job, *job.Pod
	pod.Template, out.Pod = text, &pod
	return &out, nil
}

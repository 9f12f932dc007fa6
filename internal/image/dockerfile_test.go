package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit/container"
)

// kit builds Dockerfiles when the test says so.
type kit struct {
	asked []Dockerfile
	image v1.Image      // that was built; nil before
	index v1.ImageIndex // that was built in place of an image
	err   error
}

func (k *kit) Build(ctx context.Context, d Dockerfile) (string, error) {
	k.asked = append(k.asked, d)
	tag, err := name.NewTag(d.To)
	if err = errors.Join(err, k.err); err != nil {
		return "", err
	}
	if k.index != nil {
		digest, err := k.index.Digest()
		return digest.String(), errors.Join(err, remote.WriteIndex(tag, k.index, remote.WithContext(ctx)))
	}
	digest, err := k.image.Digest()
	return digest.String(), errors.Join(err, remote.Write(tag, k.image, remote.WithContext(ctx)))
}

// filesImage is an image of one layer with files.
func filesImage(t *testing.T, config v1.Config, files map[string]string) v1.Image {
	t.Helper()
	return container.Image(t, config, container.Files(t, files))
}

// filesOf are the files of an image, by their names.
func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	all := map[string]string{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			all[h.Name] = string(text)
		}
	}
}

// A source with a Dockerfile has an image of that, with the programs of a run and the code on
// top. It is built once.
func TestTheBaseIsBuiltFromADockerfile(t *testing.T) {
	s, k := newStore(t), &kit{err: ErrBuilding}
	base := filesImage(t, v1.Config{Entrypoint: []string{"/usr/local/bin/terrier-runner"}, User: "65532:65532"}, map[string]string{
		"usr/local/bin/terrier-runner": "the runner", "usr/local/bin/tofu": "the engine", "usr/bin/git": "of the base",
	})
	built := filesImage(t, v1.Config{Entrypoint: []string{"/bin/bash"}, Cmd: []string{"-l"}, User: "root", Env: []string{"TOOL=yes"}}, map[string]string{
		"usr/bin/aws": "a tool", "usr/local/bin/tofu": "something else",
	})
	b := builder(t, s.put(t, "terrier/runner", base))
	b.Dockerfiles = k
	w := Wanted{Name: s.host + "/team/net", Namespace: "team-a", Source: "sha256:1", Revision: "main@sha1:1",
		Login:   []byte(`{"credsStore": "a-program", "auths": {"registry.example": {"auth": "dTpw"}}}`),
		Archive: code(t, map[string]string{"Dockerfile": "FROM scratch\n", "terraform/main.tf": "# net"})}

	if ref, err := b.Ensure(t.Context(), w); !errors.Is(err, ErrBuilding) {
		t.Fatalf("Ensure() = %v, %v, want that it is built", ref, err)
	}
	first := k.asked[0]
	if got := filesOf(t, pull(t, first.Code))[Directory+"/Dockerfile"]; got != "FROM scratch\n" {
		t.Errorf("the build gets the Dockerfile %q", got)
	}
	if first.Namespace != "team-a" || !strings.HasPrefix(first.To, w.Name+":terrier-dockerfile-") || string(first.Login) != `{"auths":{"registry.example":{"auth":"dTpw"}}}` {
		t.Errorf("the build is %+v with the login %s", first, first.Login)
	}
	other := w
	other.Namespace = "team-b"
	if _, err := b.Ensure(t.Context(), other); !errors.Is(err, ErrBuilding) || k.asked[1].Key == first.Key || k.asked[1].To == first.To {
		t.Errorf("two namespaces share the build %+v, %v", k.asked[1], err)
	}
	other = w
	other.Name = s.host + "/team/other"
	if _, err := b.Ensure(t.Context(), other); !errors.Is(err, ErrBuilding) || k.asked[2].Key == first.Key || !strings.HasPrefix(k.asked[2].To, other.Name+":") {
		t.Errorf("two repositories share the build %+v, %v", k.asked[2], err)
	}

	s.sent()
	s.down.Store(true) // while it is built, no registry is asked
	if _, err := b.Ensure(t.Context(), w); !errors.Is(err, ErrBuilding) || k.asked[3].Key != first.Key {
		t.Errorf("while it is built: %v after %+v", err, k.asked)
	}
	s.down.Store(false)
	k.err, k.image = nil, built
	ref, err := b.Ensure(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	image := pull(t, ref.Ref)
	got := filesOf(t, image)
	for name, want := range map[string]string{
		"usr/bin/aws": "a tool", "usr/local/bin/tofu": "the engine", "usr/local/bin/terrier-runner": "the runner", Directory + "/terraform/main.tf": "# net", "usr/bin/git": "",
	} {
		if got[name] != want {
			t.Errorf("in the image %s is %q, want %q", name, got[name], want)
		}
	}
	file, err := image.ConfigFile()
	if err != nil || !slices.Equal(file.Config.Entrypoint, []string{"/usr/local/bin/terrier-runner"}) || len(file.Config.Cmd) > 0 || file.Config.User != "65532:65532" ||
		!slices.Equal(file.Config.Env, []string{"TOOL=yes"}) || file.Config.Labels["dev.terrier.namespace"] != "team-a" {
		t.Errorf("the image says %+v of itself, %v", file, err)
	}

	s.sent()
	asked := len(k.asked)
	if again, err := b.Ensure(t.Context(), w); again != ref || err != nil || s.sent() != "0 blobs, 0 manifests" || len(k.asked) != asked {
		t.Errorf("the same source is %v, %v, then %v, built %d times", ref, err, again, len(k.asked)-asked)
	}
	if again, err := func() (Made, error) {
		next := builder(t, b.Base)
		next.Dockerfiles = k
		return next.Ensure(t.Context(), w)
	}(); again != ref || err != nil || len(k.asked) != asked+1 {
		t.Errorf("the next process makes %v of what was %v, %v, and asks %d times", again, ref, err, len(k.asked)-asked)
	}

	// A Dockerfile elsewhere is a file like others, and so is any if the operator allows none.
	elsewhere := w
	elsewhere.Source, elsewhere.Archive = "sha256:2", code(t, map[string]string{"terraform/Dockerfile": "FROM scratch\n"})
	b.Dockerfiles = nil
	plain := builder(t, b.Base)
	plain.Dockerfiles = k
	asked = len(k.asked)
	for _, tt := range []struct {
		b *Builder
		w Wanted
	}{{b, w}, {plain, elsewhere}} {
		if ref, err := tt.b.Ensure(t.Context(), tt.w); err != nil || len(k.asked) != asked || filesOf(t, pull(t, ref.Ref))["usr/bin/git"] != "of the base" {
			t.Errorf("Ensure() = %v, %v, after %d builds, want the base and the code", ref, err, len(k.asked)-asked)
		}
	}
}

// platformImage is an image whose configuration names a platform.
func platformImage(t *testing.T, of v1.Platform) v1.Image {
	t.Helper()
	image := filesImage(t, v1.Config{}, nil)
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = of.OS, of.Architecture, of.Variant
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	return image
}

// An index of a tenant costs as much as its platforms: they have a bound, and the programs of a
// base are packed once.
func TestAnIndexHasABound(t *testing.T) {
	s := newStore(t)
	base := s.put(t, "terrier/runner", filesImage(t, v1.Config{}, map[string]string{"usr/local/bin/terrier-runner": "the runner"}))
	amd := v1.Platform{OS: "linux", Architecture: "amd64"}
	for n, kind := range map[int]fault.Kind{mostPlatforms: "", mostPlatforms + 1: fault.Invalid} {
		b := builder(t, base)
		index := v1.ImageIndex(empty.Index)
		for range n {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: platformImage(t, amd), Descriptor: v1.Descriptor{Platform: &amd}})
		}
		b.Dockerfiles = &kit{index: index}
		w := Wanted{Name: fmt.Sprintf("%s/team/net%d", s.host, n), Source: "sha256:1", Archive: code(t, map[string]string{"Dockerfile": "FROM scratch\n"})}
		if _, err := b.Ensure(t.Context(), w); fault.Of(err) != kind {
			t.Errorf("Ensure() of %d platforms = %v, want of kind %q", n, err, kind)
		}
	}

	ref, err := name.ParseReference(base)
	if err != nil {
		t.Fatal(err)
	}
	under, err := remote.Get(ref)
	if err != nil {
		t.Fatal(err)
	}
	dir, packed := t.TempDir(), map[v1.Hash]v1.Layer{}
	for _, arch := range []string{"amd64", "arm64", "amd64"} {
		image, err := withPrograms(dir, under, platformImage(t, v1.Platform{OS: "linux", Architecture: arch}), packed)
		if err != nil || filesOf(t, image)["usr/local/bin/terrier-runner"] != "the runner" {
			t.Errorf("the image for %s has %v, %v", arch, image, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the programs of one image are in %v, %v", files, err)
	}
}

// What a Dockerfile says of its platform names no file: the builder looks whether one is left.
func TestAPlatformNamesNoFile(t *testing.T) {
	s := newStore(t)
	b := builder(t, s.put(t, "terrier/runner", filesImage(t, v1.Config{}, map[string]string{"usr/local/bin/terrier-runner": "the runner"})))
	b.Dockerfiles = &kit{image: platformImage(t, v1.Platform{OS: "linux", Architecture: "amd64", Variant: "/../../escaped"})}
	if _, err := b.Ensure(t.Context(), Wanted{Name: s.host + "/team/net", Source: "sha256:1", Archive: code(t, map[string]string{"Dockerfile": "FROM scratch\n"})}); err != nil {
		t.Fatal(err)
	}
}

// A build that fails says why, without the login.
func TestADockerfileThatCannotBeBuiltSaysWhy(t *testing.T) {
	s := newStore(t)
	base := s.put(t, "terrier/runner", filesImage(t, v1.Config{}, map[string]string{"usr/local/bin/terrier-runner": "the runner"}))
	w := Wanted{Name: s.host + "/team/net", Namespace: "team-a", Source: "sha256:1", Archive: code(t, map[string]string{"Dockerfile": "FROM scratch\n"})}
	w.Keys = s.keys(t, "open-sesame-4711")
	arm := platformImage(t, v1.Platform{OS: "linux", Architecture: "arm64"})
	large := filesImage(t, v1.Config{Labels: map[string]string{"a": strings.Repeat("a", 5<<20)}}, nil)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: filesImage(t, v1.Config{}, nil), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	only, err := name.NewTag(s.host + "/terrier/only")
	if err == nil {
		err = remote.WriteIndex(only, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		kit    kit
		base   string
		kind   fault.Kind
		reason string
		want   string
	}{
		"a step failed":         {kit{err: fault.New(fault.Invalid, "", errors.New("RUN said open-sesame-4711"))}, base, fault.Invalid, ReasonDockerfile, "building the Dockerfile: RUN said "},
		"no programs":           {kit{image: filesImage(t, v1.Config{}, nil)}, s.put(t, "terrier/none", filesImage(t, v1.Config{}, nil)), fault.Broken, ReasonBase, "has no program in /usr/local/bin"},
		"a large configuration": {kit{image: large}, base, fault.Invalid, source.ReasonLayer, "the configuration of the image has"},
		"of another platform":   {kit{image: arm}, only.String(), fault.Broken, ReasonBase, "is not for linux/arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			b := builder(t, tt.base)
			b.Dockerfiles = &tt.kit
			ref, err := b.Ensure(t.Context(), w)
			text := fmt.Sprint(err)
			if fault.Of(err) != tt.kind || fault.Reason(err, "") != tt.reason || !strings.Contains(text, tt.want) || strings.Contains(text, "open-sesame") {
				t.Errorf("Ensure() = %v, %v (%s, %s), want %s, %s with %q", ref, err, fault.Of(err), fault.Reason(err, ""), tt.kind, tt.reason, tt.want)
			}
		})
	}
}

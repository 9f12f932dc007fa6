package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/terrier-iac/terrier/internal/fault"
)

// cluster is the namespace team as it is now.
type cluster struct {
	now  RegistryNamespace
	err  error
	left []string // names that what former ones left has got
}

func (c *cluster) options() RegistryOptions {
	return RegistryOptions{
		Namespace: func(_ context.Context, name string) (RegistryNamespace, error) {
			if name != "team" {
				return RegistryNamespace{}, c.err
			}
			return c.now, c.err
		},
		Aside: func(_, now string) { c.left = append(c.left, now) },
	}
}

func someImage(t *testing.T) (v1.Image, string) {
	t.Helper()
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return image, digest.String()
}

// whole reports whether an image can be pulled with its content.
func whole(t *testing.T, ref, digest string) bool {
	t.Helper()
	got, err := crane.Pull(ref)
	if err != nil {
		return false
	}
	sum, err := got.Digest()
	if err != nil || sum.String() != digest {
		return false
	}
	layers, err := got.Layers()
	if err != nil || len(layers) != 1 {
		return false
	}
	r, err := layers[0].Compressed()
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close()) == nil
}

// However often a namespace is deleted and created again, and whichever user pushes when: under its name
// is what was pushed since it exists, with what was pushed for it before, and under the names of the
// former ones is all that they left.
func TestArtifactsAreOfOneNamespace(t *testing.T) {
	type artifact struct{ tag, digest string }
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 3))
		c := &cluster{}
		host := strings.TrimPrefix(diskRegistry(t, t.TempDir(), c.options()).URL, "http://")
		of := map[string][]artifact{} // by the UID of the namespace, or for the next one
		const next = "none"
		owner, born, under := "", 0, "" // the namespace of now; how many there were; of which one something is below the name
		see := func(writes bool) {
			switch {
			case owner == "" && under == "" && writes:
				under = next
			case owner == "" || under == owner:
			case under == next:
				of[owner], of[next], under = of[next], nil, owner
			default:
				if under = ""; writes {
					under = owner
				}
			}
		}
		for step := range 30 {
			switch n := random.IntN(6); {
			case n == 0:
				c.now, owner = RegistryNamespace{}, ""
			case n == 1 && owner == "":
				born++
				owner = fmt.Sprintf("uid-%d", born)
				c.now = RegistryNamespace{UID: owner, Created: time.Now()}
			case n < 4:
				image, digest := someImage(t)
				tag := fmt.Sprintf("v%d", step)
				if err := crane.Push(image, host+"/team/app:"+tag); err != nil {
					t.Fatal(err)
				}
				see(true)
				of[under] = append(of[under], artifact{tag, digest})
			}
			listed, err := crane.ListTags(host + "/team/app")
			see(false)
			if err != nil {
				listed = nil
			}
			var want []string
			for _, a := range of[under] {
				want = append(want, a.tag)
				if !whole(t, host+"/team/app:"+a.tag, a.digest) {
					t.Fatalf("seed %d, step %d: %s is not there as it was pushed", seed, step, a.tag)
				}
			}
			slices.Sort(want)
			if !slices.Equal(listed, want) {
				t.Fatalf("seed %d, step %d: the namespace %q has %v, want %v", seed, step, owner, listed, want)
			}
			for uid, all := range of {
				if uid == under {
					continue
				}
				for _, a := range all {
					if whole(t, host+"/team/app@"+a.digest, a.digest) || !whole(t, host+"/team."+uid+"/app:"+a.tag, a.digest) {
						t.Fatalf("seed %d, step %d: what %q left is not below its name alone", seed, step, uid)
					}
				}
			}
		}
	}
}

// What an earlier release left says nothing of its namespace: what is older than the namespace of
// now is a former one's.
func TestArtifactsOfEarlierReleases(t *testing.T) {
	created := time.Now()
	for name, tt := range map[string]struct {
		pushed time.Time
		ours   bool
	}{
		"pushed before the namespace was created": {created.Add(-time.Hour), false},
		"pushed since then":                       {created.Add(time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := diskRegistry(t, dir, RegistryOptions{})
			image, digest := someImage(t)
			if err := crane.Push(image, strings.TrimPrefix(before.URL, "http://")+"/team/app:v1"); err != nil {
				t.Fatal(err)
			}
			err := filepath.WalkDir(filepath.Join(dir, "repos"), func(path string, _ os.DirEntry, err error) error {
				return errors.Join(err, os.Chtimes(path, tt.pushed, tt.pushed))
			})
			if err != nil {
				t.Fatal(err)
			}
			c := &cluster{}
			host := strings.TrimPrefix(diskRegistry(t, dir, c.options()).URL, "http://")
			if !whole(t, host+"/team/app:v1", digest) {
				t.Error("without a namespace it is not there")
			}
			c.now = RegistryNamespace{UID: "uid", Created: created}
			if got := whole(t, host+"/team/app:v1", digest); got != tt.ours {
				t.Errorf("the namespace has it: %v, want %v", got, tt.ours)
			}
			if !tt.ours && (!slices.Equal(c.left, []string{"team.before-uid"}) || !whole(t, host+"/team.before-uid/app:v1", digest)) {
				t.Errorf("it is not below %v", c.left)
			}
			other, digest := someImage(t)
			if err := crane.Push(other, host+"/team/app:v1"); err != nil {
				t.Fatal(err)
			}
			c.now.Created = c.now.Created.Add(time.Hour) // what is written down counts
			if !whole(t, host+"/team/app:v1", digest) {
				t.Error("what was pushed since then is not there")
			}
		})
	}
}

// A cluster that is restored has what it had, and a server that cannot tell whose something is
// gives it to no user.
func TestArtifactsOfARestoredCluster(t *testing.T) {
	c := &cluster{now: RegistryNamespace{UID: "one"}}
	url := diskRegistry(t, t.TempDir(), c.options()).URL
	host := strings.TrimPrefix(url, "http://")
	image, first := someImage(t)
	if err := crane.Push(image, host+"/team/app:v1"); err != nil {
		t.Fatal(err)
	}
	c.now.UID = "two"
	image, second := someImage(t)
	if err := crane.Push(image, host+"/team/app:v1"); err != nil {
		t.Fatal(err)
	}
	if got := catalogOf(t, url); got != `{"repositories":["team.one/app","team/app"]}` {
		t.Errorf("the catalogue is %s", got)
	}
	c.now.UID = "one"
	if !whole(t, host+"/team/app:v1", first) || !whole(t, host+"/team.two/app:v1", second) {
		t.Error("the namespace that is there again does not have what it had")
	}
	if want := []string{"team.one", "team.two"}; !slices.Equal(c.left, want) {
		t.Errorf("moved were %v, want %v", c.left, want)
	}
	c.err = fault.New(fault.Later, "Namespaces", errors.New("this server may not list namespaces"))
	resp, err := http.Get(url + "/v2/team/app/tags/list")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "may not list namespaces") {
		t.Errorf("the answer is %d %s, %v", resp.StatusCode, body, err)
	}
}

func catalogOf(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url + "/v2/_catalog")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the catalogue answers %d, %v", resp.StatusCode, err)
	}
	return strings.TrimSpace(string(body))
}

package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Uploads of one namespace that go on for ever take no place of another one.
func TestRegistryPlacesOfANamespace(t *testing.T) {
	c := client{t, diskRegistry(t, t.TempDir(), RegistryOptions{}).URL}
	var at string
	for range 64 {
		begun := c.do("POST", "/v2/team-a/net/blobs/uploads/", "", "")
		c.want(begun, http.StatusAccepted)
		at = begun.Header.Get("Location")
	}
	refused := c.do("POST", "/v2/team-a/other/blobs/uploads/", "", "")
	c.want(refused, http.StatusTooManyRequests)
	if body, _ := io.ReadAll(refused.Body); !strings.Contains(string(body), "64 uploads of the namespace team-a are under way: finish or cancel some of them") {
		t.Errorf("the refusal is %s", body)
	}
	c.want(c.do("POST", "/v2/team-b/net/blobs/uploads/?digest="+digestOf("x"), "", "x"), http.StatusCreated)
	c.want(c.do("PATCH", strings.Replace(at, "team-a", "team-b", 1), "", "x"), http.StatusNotFound) // it is not theirs
	c.want(c.do("PATCH", at, "", "x"), http.StatusAccepted)
	c.want(c.do("DELETE", at, "", ""), http.StatusNoContent)
	c.want(c.do("POST", "/v2/team-a/net/blobs/uploads/", "", ""), http.StatusAccepted)
}

// What users push leaves the twentieth of the disk to others.
func TestRegistryLeavesRoom(t *testing.T) {
	const size = 1 << 30
	free := int64(size/20 + 4<<20)
	disk := room.New(func() (int64, int64, error) { return free, size, nil })
	c := client{t, diskRegistry(t, t.TempDir(), RegistryOptions{Room: func() (RegistryClaim, error) { return disk.Claim(0) }}).URL}
	const oci = "application/vnd.oci.image.manifest.v1+json"
	at := c.do("POST", "/v2/team/net/blobs/uploads/", "", "").Header.Get("Location")
	c.want(c.do("PATCH", at, "", strings.Repeat("x", 1<<20)), http.StatusAccepted)
	refused := c.do("PATCH", at, "", strings.Repeat("x", 3<<20))
	c.want(refused, http.StatusServiceUnavailable)
	if body, _ := io.ReadAll(refused.Body); !strings.Contains(string(body), "UNAVAILABLE") || !strings.Contains(string(body), "would leave less than the 51 MiB") {
		t.Errorf("the refusal is %s", body)
	}
	if got := c.do("GET", at, "", "").Header.Get("Range"); got != fmt.Sprintf("0-%d", 1<<20-1) {
		t.Errorf("after a refusal the upload has %s, want what it had before", got)
	}
	free = size/20 - 1
	c.want(c.do("POST", "/v2/team/net/blobs/uploads/", "", ""), http.StatusServiceUnavailable)
	c.want(c.do("PUT", "/v2/team/net/manifests/v1", oci, "{}"), http.StatusServiceUnavailable)
	c.want(c.do("PUT", at+"?digest="+digestOf(strings.Repeat("x", 1<<20)), "", ""), http.StatusServiceUnavailable)
	c.want(c.do("DELETE", at, "", ""), http.StatusNoContent) // which makes room
	free = size
	c.want(c.do("PUT", "/v2/team/net/manifests/v1", oci, "{}"), http.StatusCreated)
}

// A namespace has what its quota lets it have, of blobs, manifests and uploads together, also
// after a restart. What it deletes is free again.
func TestRegistryQuota(t *testing.T) {
	const mib = 1 << 20
	dir, now := t.TempDir(), time.Now()
	quota := int64(2 * mib)
	o := RegistryOptions{Now: func() time.Time { return now }, Quota: func(_ context.Context, namespace string) (RegistryQuota, error) {
		if namespace == "away" {
			return RegistryQuota{}, fault.New(fault.Later, "Away", fmt.Errorf("the API server does not answer"))
		}
		return RegistryQuota{Bytes: quota, Raise: "--quota-size"}, nil
	}}
	c := client{t, diskRegistry(t, dir, o).URL}
	const oci = "application/vnd.oci.image.manifest.v1+json"
	one, two := strings.Repeat("1", mib), strings.Repeat("2", mib)
	push := func(repo, content string, want int) *http.Response {
		t.Helper()
		answer := c.do("POST", "/v2/"+repo+"/blobs/uploads/?digest="+digestOf(content), "", content)
		c.want(answer, want)
		return answer
	}
	push("team/net", one, http.StatusCreated)
	push("team/net", one, http.StatusForbidden) // for a moment it is there twice
	refused := push("team/other", two, http.StatusForbidden)
	if body, _ := io.ReadAll(refused.Body); !strings.Contains(string(body), "DENIED") || !strings.Contains(string(body), "the namespace team has 1 MiB in its repositories and uploads, and its quota is 2 MiB") || !strings.Contains(string(body), "(--quota-size)") {
		t.Errorf("the refusal is %s", body)
	}
	push("other/net", two, http.StatusCreated)
	push("away/net", "x", http.StatusServiceUnavailable)
	if left, err := os.ReadDir(filepath.Join(dir, "uploads", "team")); err != nil || len(left) > 0 {
		t.Errorf("%d uploads in one piece are left after they were refused, %v", len(left), err)
	}

	// What was refused is not counted, and a mount takes little.
	half := strings.Repeat("h", mib/2)
	push("team/net", half, http.StatusCreated)
	push("team/net", half, http.StatusForbidden)
	c.want(c.do("POST", "/v2/team/copy/blobs/uploads/?mount="+digestOf(one)+"&from=team/net", "", ""), http.StatusCreated)
	c.want(c.do("PUT", "/v2/team/copy/manifests/v1", oci, `{"layers":[{"digest":"`+digestOf(one)+`"}]}`), http.StatusCreated)
	c.want(c.do("PUT", "/v2/team/copy/manifests/v2", oci, strings.Repeat(" ", mib/2)+"{}"), http.StatusForbidden)

	// An upload that goes on is counted, and one that is given up or abandoned is not.
	at := c.do("POST", "/v2/team/net/blobs/uploads/", "", "").Header.Get("Location")
	c.want(c.do("PATCH", at, "", strings.Repeat("u", 300<<10)), http.StatusAccepted)
	push("team/net", strings.Repeat("v", 200<<10), http.StatusForbidden)
	c.want(c.do("DELETE", at, "", ""), http.StatusNoContent)
	at = c.do("POST", "/v2/team/net/blobs/uploads/", "", "").Header.Get("Location")
	c.want(c.do("PATCH", at, "", strings.Repeat("u", 300<<10)), http.StatusAccepted)
	now = now.Add(2 * time.Hour)
	push("team/net", strings.Repeat("v", 200<<10), http.StatusCreated)

	// A restart counts what there is, mounts once.
	c = client{t, diskRegistry(t, dir, o).URL}
	push("team/net", two, http.StatusForbidden)
	push("team/net", strings.Repeat("w", 200<<10), http.StatusCreated)
	c.want(c.do("DELETE", "/v2/team/net/blobs/"+digestOf(half), "", ""), http.StatusAccepted)
	push("team/net", half, http.StatusCreated)

	// A smaller quota counts at once, and none bounds nothing.
	quota = mib
	push("team/net", "x", http.StatusForbidden)
	quota = 0
	push("team/net", two, http.StatusCreated)
	quota = 5 * mib / 2
	push("team/net", "x", http.StatusForbidden)
	quota = 4 * mib
	push("team/net", "x", http.StatusCreated)
}

package browse

import (
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/catalog"
)

// A tag that moved is on the page of all repositories, on that of its repository, and on that
// of the version, for users who may read the namespace.
func TestATagThatMovedIsOnThePages(t *testing.T) {
	w := newWorld(t)
	m := w.publish("net", "network", "1.0.0", network)
	w.publish("net", "network", "1.1.0", network)
	moved := catalog.TagProblem{Reason: catalog.TagMoved, Tag: "v1.0.0", Module: "net/network/aws", Version: "1.0.0", Was: "aaaa1111", Is: "bbbb2222", Text: "the tag v1.0.0 moved " + hostile, Since: time.Now().Add(-time.Hour)}
	w.tagged = []catalog.Repository{
		{Namespace: "net", Name: "calm", URL: "https://git.example.com/calm", Module: "calm/aws", Checked: time.Now(), Versions: 4, Named: 1, Newest: "net/calm/aws 2.0.0", Modules: []catalog.TaggedModule{{Name: "net/calm/aws", Versions: 4, Newest: "2.0.0"}}},
		{Namespace: "net", Name: "many", URL: "https://git.example.com/many", Module: "{name}/aws", Checked: time.Now(), Versions: 9, Named: 2, Pending: 1, Skips: 3, Skipped: []catalog.SkippedTag{{Tag: "latest", Reason: "no version"}}},
		{Namespace: "net", Name: "network", URL: "https://git.example.com/network" + hostile, Module: "network/aws", Checked: time.Now(), Versions: 2, Problems: []catalog.TagProblem{moved}},
		{Namespace: "other", Name: "unseen", Problems: []catalog.TagProblem{moved}},
	}
	w.roles = map[string]bool{"net": true}
	page := w.shown(w.visit("/registry/repositories", nil), Repositories)
	has(t, page, "repositories 1–3 of 3", "1 tag moved after its version was published.", "1 problem", "2.0.0", "of 2 modules", "1 tag to go", `href="/registry/repositories/net/network"`)
	lacks(t, page, "unseen", "<script>alert", "1 problems", "1 tags")

	at := func(name string) map[string]string { return map[string]string{"namespace": "net", "name": name} }
	page = w.shown(w.visit("/registry/repositories/net/network", at("network")), Repository)
	has(t, page, "The tag v1.0.0 moved after version 1.0.0 was published", "aaaa1111", "bbbb2222", `href="/registry/modules/net/network/aws?version=1.0.0"`, "terrier module repositories net/network")
	lacks(t, page, "<script>alert")
	has(t, w.shown(w.visit("/registry/repositories/net/many", at("many")), Repository), "latest", "and 2 more tags")
	has(t, w.shown(w.visit("/registry/repositories/net/calm", at("calm")), Repository), `href="/registry/modules/net/calm/aws"`)
	if _, err := Repository(w.visit("/registry/repositories/net/none", at("none"))); fault.Of(err) != fault.Missing {
		t.Errorf("a repository that is not registered is %v, want a Missing fault", err)
	}

	has(t, w.shown(w.visit("/registry/modules/net/network/aws?version=1.0.0", ofModule(m)), Module), "The tag v1.0.0 moved after version 1.0.0 was published")
	lacks(t, w.shown(w.visit("/registry/modules/net/network/aws?version=1.1.0", ofModule(m)), Module), "v1.0.0 moved")
}

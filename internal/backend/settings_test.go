package backend_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/stack"
)

// rendered is the block of a backend that Terrier knows, with settings beside right ones.
func rendered(t *testing.T, name string, settings map[string]string) (backend.Block, error) {
	t.Helper()
	b, ok := backend.Find(name)
	if !ok {
		t.Fatalf("there is no backend %s", name)
	}
	all := map[string]map[string]string{
		backend.AWS:   {"s3": "store", "region": "eu-central-1"},
		backend.GCS:   {"bucket": "store"},
		backend.Azure: {"storageAccount": "store", "container": "states"},
		backend.Local: {"path": "/srv/a.tfstate"},
		backend.HTTP:  {"address": "https://states.example.org/a"},
	}[name]
	all = maps.Clone(all)
	maps.Copy(all, settings)
	return b.Render(backend.Request{Version: backend.Version, Backend: name, Settings: all, Stack: backend.Stack{Namespace: "team", Name: "network"}, Engine: "tofu 1.12.6"})
}

// A setting that names another place than it says is refused by its name.
func TestSettingsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		backend string
		setting string
		value   string
	}{
		"a key above the bucket":                {backend.AWS, "key", "../other/terraform.tfstate"},
		"a key with a dot":                      {backend.AWS, "key", "a/./b"},
		"a key that ends above":                 {backend.AWS, "key", "a/.."},
		"a key of two lines":                    {backend.AWS, "key", "a\nb"},
		"a key with NUL":                        {backend.AWS, "key", "a\x00b"},
		"a key longer than an object's name":    {backend.AWS, "key", strings.Repeat("é", 500)},
		"a bucket that is a path":               {backend.AWS, "s3", "store/../other"},
		"a region that is a host":               {backend.AWS, "region", "x.example.org/"},
		"a table that is a path":                {backend.AWS, "dynamoDB", "a/b"},
		"a prefix above the bucket":             {backend.GCS, "prefix", "a/../.."},
		"a bucket of Google that is a path":     {backend.GCS, "bucket", "store/o/x"},
		"a bucket of Google that is a query":    {backend.GCS, "bucket", "store?x=y"},
		"a bucket of Google that is a parent":   {backend.GCS, "bucket", ".."},
		"an account that is a host":             {backend.Azure, "storageAccount", "example.org/#"},
		"a container that is a path":            {backend.Azure, "container", "a/b"},
		"a key of Azure above the container":    {backend.Azure, "key", ".."},
		"a file above the directory":            {backend.Local, "path", "/srv/../etc/passwd"},
		"an address with a password":            {backend.HTTP, "address", "https://u:p@example.org/"},
		"an address that is no URL of a server": {backend.HTTP, "lock_address", "file:///etc/passwd"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := rendered(t, c.backend, map[string]string{c.setting: c.value})
			e, ok := errors.AsType[*backend.Error](err)
			if !ok || e.Message == "" || len(e.Message) > 1000 {
				t.Fatalf("Render() = %+v, %v, want an error about %s", b, err, c.setting)
			}
			if other := map[string]string{"storageAccount": "storage_account_name", "container": "container_name"}[c.setting]; e.Field != c.setting && e.Field != other {
				t.Errorf("the error is about %q, want %s", e.Field, c.setting)
			}
		})
	}
}

// An odd value that names one object reaches the engine as it is.
func TestSettingsTaken(t *testing.T) {
	for _, key := range []string{"état/ключ", `a"b`, "a b", "a%2Fb", "${path.module}", "a..b/...", "'", "{}", "-", "ends in .tfstate?x=y#z"} {
		b, err := rendered(t, backend.AWS, map[string]string{"key": key})
		if err != nil || b.Text("key") != key {
			t.Errorf("%q became %q, %v", key, b.Text("key"), err)
		}
		if _, err := b.File(); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// A state in git needs no plug-in: it is a managed one, whose place its settings name.
func TestSettingsOfAStateInGit(t *testing.T) {
	url := map[string]string{"repository": "https://git.example.org/states", "secretRef": "push"}
	b, err := backend.Of(backend.Git, url, "team", "network")
	want := stack.Backend{Kind: stack.Managed, Suffix: "network", InCluster: true, Git: &stack.GitPlace{Repository: url["repository"], Secret: "push"}}
	if diff := cmp.Diff(want, b); err != nil || diff != "" {
		t.Errorf("Of() = %v, (-want +got):\n%s", err, diff)
	}
	if _, err := backend.Of(backend.Git, map[string]string{"repository": "states"}, "team", "network"); err != nil {
		t.Errorf("a GitRepository without a secretRef: %v", err)
	}
	if !slices.Contains(backend.Names(), backend.Git) {
		t.Errorf("Names() = %v", backend.Names())
	}
	for name, c := range map[string]struct{ setting, value, says string }{
		"no repository":                 {"repository", "", "is missing"},
		"a path of git@host":            {"repository", "git@git.example.org:states.git", "ssh://git@host/path"},
		"another scheme":                {"repository", "file:///srv/states", "https or ssh"},
		"a password in the URL":         {"repository", "https://u:canary@git.example.org/states", "secretRef"},
		"a URL that cannot be read":     {"repository", "https://u:canary@%zz/", "no URL that can be read"},
		"a URL of a host alone":         {"repository", "https://git.example.org", "a path"},
		"a URL without credentials":     {"secretRef", "", "is missing"},
		"a Secret elsewhere":            {"secretRef", "other/push", "no name of a Secret"},
		"a branch with a blank":         {"branch", "a b", "no name of a branch"},
		"a branch that is an option":    {"branch", "--upload-pack=x", "no name of a branch"},
		"a branch above":                {"branch", "a/../b", "no name of a branch"},
		"a path above":                  {"path", "../x", `".."`},
		"an absolute path":              {"path", "/x", `""`},
		"a path into git itself":        {"path", "a/.GIT/config", ".GIT"},
		"a path that is too long":       {"path", strings.Repeat("a/", 300) + "a", "bytes"},
		"a number that is none":         {"warnAbove", "many", "no number"},
		"a setting that does not exist": {"password", "canary", "secretRef"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := maps.Clone(url)
			settings[c.setting] = c.value
			_, err := backend.Of(backend.Git, settings, "team", "network")
			e, ok := errors.AsType[*backend.Error](err)
			if !ok || e.Field != c.setting || !strings.Contains(e.Message, c.says) || strings.Contains(e.Message, "canary") {
				t.Errorf("Of() = %v, want %q about %s", err, c.says, c.setting)
			}
		})
	}
}

package kube

import (
	"fmt"
	"strings"
	"testing"
)

// A path is a JSON pointer or a JSONPath; where it leads nowhere, nothing is there.
func TestPaths(t *testing.T) {
	doc, err := ReadDocument([]byte(`
vlans:
- {id: 100, name: grooveiq, tags: [a, b]}
- {id: 200, name: vintronics}
"a/b": {"c~d": true}
zones: {tenant.example.com: open}
none: null
`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/vlans/0/name":               "[grooveiq]",
		"/vlans/0/id":                 "[100]",
		"/a~1b/c~0d":                  "[true]",
		"/vlans/2/name":               "[]",
		"/vlans/x":                    "[]",
		"/vlans/0/name/more":          "[]",
		"/none":                       "[]",
		".vlans[1].name":              "[vintronics]",
		"vlans[1].name":               "[vintronics]",
		"{.vlans[?(@.id==100)].name}": "[grooveiq]",
		".vlans[?(@.id==300)].name":   "[]",
		".vlans[*].id":                "[100 200]",
		".vlans[9].id":                "[]",
		`.zones.tenant\.example\.com`: "[open]",
		".zones.absent.deeper":        "[]",
		".vlans[0].name.more":         "[]",
	} {
		got, err := FindPath(doc, path)
		if err != nil || CheckPath(path) != nil || strings.ReplaceAll(fmt.Sprint(got), "<nil>", "") != want {
			t.Errorf("FindPath(%s) = %v, %v, %v, want %s", path, got, err, CheckPath(path), want)
		}
	}
	for _, bad := range []string{".vlans[", "{.a", ".a[?(@.b==]"} {
		if err := CheckPath(bad); err == nil || !strings.Contains(err.Error(), "neither a JSONPath") {
			t.Errorf("CheckPath(%q) = %v, want to be told what a path is", bad, err)
		}
	}
	if got, err := FindPath(nil, ".a"); len(got) != 0 || err != nil {
		t.Errorf("FindPath() of an empty document = %v, %v, want nothing", got, err)
	}
	if _, err := ReadDocument([]byte("a: [")); err == nil {
		t.Error("ReadDocument() takes what is no YAML")
	}
	if _, err := ReadDocument([]byte(`[&a "` + strings.Repeat("x", 1<<10) + `"` + strings.Repeat(", *a", 10<<10) + "]")); err == nil {
		t.Error("ReadDocument() takes a text whose aliases stand for 10 MiB")
	}
}

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAttributesThatStayAreListed(t *testing.T) {
	const document = `{"format_version":"1.2","resource_changes":[{"address":"a.b","change":{"actions":["update"],
		"before":{"id":"1","gone":"x","same":{"a":[1]},"none":null,"later":"z","secret":"old-secret","kept":"kept-secret"},
		"after":{"id":"1","same":{"a":[1]},"none":null,"secret":"new-secret","kept":"kept-secret"},
		"after_unknown":{"later":true},
		"before_sensitive":{"secret":true,"kept":true},"after_sensitive":{"secret":true,"kept":true}}},
		{"address":"a.c","change":{"actions":["delete"],"before":{"id":"1"},"after":null}}]}`
	want := []string{"id", "kept", "same"}
	for name, d := range map[string]*Document{"raw": parse(t, []byte(document)), "masked": parse(t, parse(t, []byte(document)).Masked())} {
		items := d.Items()
		if got := items[0].Unchanged; !cmp.Equal(got, want) {
			t.Errorf("%s: what stays is %q, want %q", name, got, want)
		}
		if got := items[1].Unchanged; got != nil {
			t.Errorf("%s: what stays of something destroyed is %q, want nothing", name, got)
		}
	}
}

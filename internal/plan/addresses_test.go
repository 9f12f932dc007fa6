package plan

import (
	"fmt"
	"strings"
	"testing"
)

func documentOf(t *testing.T, changes string) *Document {
	t.Helper()
	d, err := ParseDocument([]byte(`{"format_version":"1.2","resource_changes":[` + changes + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func changing(address, action, after string) string {
	return fmt.Sprintf(`{"address":%q,"mode":"managed","type":"x","name":"y","change":{"actions":[%q],"before":{"tags":"a","note":"n"},"after":{"tags":%q,"note":"n"}}}`, address, action, after)
}

func TestAddressesAreOfThePlacesAlone(t *testing.T) {
	one, example := documentOf(t, changing("x.a", "update", "secret-1")+","+changing("x.b", "update", "2")).Addresses()
	if example != "x.a: tags" || strings.Contains(one, "secret") {
		t.Errorf("Addresses() = %q, %q; want an example of x.a and its tags", one, example)
	}
	for name, tt := range map[string]struct {
		changes string
		same    bool
	}{
		"other values":         {changing("x.b", "update", "3") + "," + changing("x.a", "update", "4"), true},
		"another place":        {changing("x.a", "update", "1") + "," + changing("x.c", "update", "2"), false},
		"another action":       {changing("x.a", "delete", "1") + "," + changing("x.b", "update", "2"), false},
		"one place less":       {changing("x.a", "update", "1"), false},
		"what stays as it is":  {changing("x.a", "update", "1") + "," + changing("x.b", "update", "2") + "," + changing("x.c", "no-op", "a"), true},
		"a read of the world":  {changing("x.a", "update", "1") + "," + changing("x.b", "update", "2") + "," + changing("data.x.c", "read", "a"), true},
		"nothing at all":       {"", false},
		"only what stays that": {changing("x.a", "no-op", "a"), false},
	} {
		got, _ := documentOf(t, tt.changes).Addresses()
		if (got == one) != tt.same {
			t.Errorf("%s: the same is %v, want %v", name, got == one, tt.same)
		}
	}
	if got, example := documentOf(t, changing("x.c", "no-op", "a")).Addresses(); got != "" || example != "" {
		t.Errorf("Addresses() of nothing = %q, %q, want nothing", got, example)
	}
}

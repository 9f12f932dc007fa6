package tenant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lists are the keys of a few lists, by path; a list that is missing has none.
func lists(path []string) List {
	keys := map[string][]ListKey{
		"list":           {{Name: "name"}},
		"list.[].ports":  {{Name: "port"}, {Name: "protocol", Default: "TCP"}},
		"list.[].mounts": {{Name: "path"}},
	}
	at := strings.Join(path, ".")
	return List{Known: at != "unread", Keys: keys[at]}
}

func ignoring(t *testing.T, entries ...string) Ignored {
	t.Helper()
	g, err := ParseIgnored(entries, lists)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestIgnoredFieldsAreKept(t *testing.T) {
	for name, tt := range map[string]struct{ entry, desired, live, want string }{
		"one annotation":         {"$.meta.annotations['a/x']", `{"meta":{"annotations":{"a/x":"ours","b":"ours"}}}`, `{"meta":{"annotations":{"a/x":"theirs","b":"theirs"}}}`, `{"meta":{"annotations":{"a/x":"theirs","b":"ours"}}}`},
		"a map":                  {"$.meta.annotations", `{"meta":{"annotations":{"a/x":"ours"}}}`, `{"meta":{"annotations":{"a/x":"theirs","c":"theirs"}}}`, `{"meta":{"annotations":{"a/x":"theirs","c":"theirs"}}}`},
		"all fields of a map":    {"$.meta.annotations.*", `{"meta":{"annotations":{"a/x":"ours","d":"ours"}}}`, `{"meta":{"annotations":{"a/x":"theirs","c":"theirs"}}}`, `{"meta":{"annotations":{"a/x":"theirs","c":"theirs"}}}`},
		"only live has it":       {"$.spec.replicas", `{"meta":{}}`, `{"spec":{"replicas":7}}`, `{"meta":{},"spec":{"replicas":7}}`},
		"neither has it":         {"$.spec.nothing.at.all", `{"meta":{}}`, `{"spec":{"replicas":7}}`, `{"meta":{}}`},
		"it was removed":         {"$.spec.replicas", `{"spec":{"replicas":1}}`, `{"spec":{}}`, `{"spec":{}}`},
		"the same order":         {"$.list[*].image", `{"list":[{"name":"a","image":"ours"},{"name":"b","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"},{"name":"b","image":"b2"}]}`, `{"list":[{"name":"a","image":"a2"},{"name":"b","image":"b2"}]}`},
		"another order":          {"$.list[*].image", `{"list":[{"name":"b","image":"ours"},{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"},{"name":"b","image":"b2"}]}`, `{"list":[{"name":"b","image":"b2"},{"name":"a","image":"a2"}]}`},
		"a new element first":    {"$.list[*].image", `{"list":[{"name":"c","image":"ours"},{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"}]}`, `{"list":[{"name":"c","image":"ours"},{"name":"a","image":"a2"}]}`},
		"an element was removed": {"$.list[*].image", `{"list":[{"name":"b","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"},{"name":"b","image":"b2"}]}`, `{"list":[{"name":"b","image":"b2"}]}`},
		"an element of others":   {"$.list[*].image", `{"list":[{"name":"a","image":"ours"}]}`, `{"list":[{"name":"sidecar","image":"x"},{"name":"a","image":"a2"}]}`, `{"list":[{"name":"a","image":"a2"}]}`},
		"an element without its key": {"$.list[*].image", `{"list":[{"image":"ours"},{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"},{"image":"x"}]}`,
			`{"list":[{"image":"ours"},{"name":"a","image":"a2"}]}`},
		"whole elements": {"$.list[*]", `{"list":[{"name":"c","image":"ours"},{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2","tty":true}]}`, `{"list":[{"name":"c","image":"ours"},{"name":"a","image":"a2","tty":true}]}`},
		"a place of the template": {"$.list[0].image", `{"list":[{"name":"b","image":"ours"},{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"},{"name":"b","image":"b2"}]}`,
			`{"list":[{"name":"b","image":"b2"},{"name":"a","image":"ours"}]}`},
		"a place of a new element":       {"$.list[0].image", `{"list":[{"name":"c","image":"ours"},{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"}]}`, `{"list":[{"name":"c","image":"ours"},{"name":"a","image":"ours"}]}`},
		"a place that is not there":      {"$.list[9].image", `{"list":[{"name":"a","image":"ours"}]}`, `{"list":[{"name":"a","image":"a2"}]}`, `{"list":[{"name":"a","image":"ours"}]}`},
		"a place in a list without keys": {"$.args[1]", `{"args":["a","b"]}`, `{"args":["a","theirs"]}`, `{"args":["a","theirs"]}`},
		"lists in lists": {"$.list[*].mounts[*].ro", `{"list":[{"name":"b","mounts":[{"path":"/y","ro":false},{"path":"/x","ro":false}]},{"name":"a","mounts":[{"path":"/x","ro":false}]}]}`,
			`{"list":[{"name":"a","mounts":[{"path":"/x","ro":"a"}]},{"name":"b","mounts":[{"path":"/x","ro":"bx"},{"path":"/y","ro":"by"}]}]}`,
			`{"list":[{"name":"b","mounts":[{"path":"/y","ro":"by"},{"path":"/x","ro":"bx"}]},{"name":"a","mounts":[{"path":"/x","ro":"a"}]}]}`},
		"a list that only live has": {"$.list[*].mounts[*].ro", `{"list":[{"name":"a"}]}`, `{"list":[{"name":"a","mounts":[{"path":"/x","ro":"a"}]}]}`, `{"list":[{"name":"a"}]}`},
		"several keys, one by default": {"$.list[*].ports[*].name", `{"list":[{"name":"a","ports":[{"port":53,"protocol":"UDP","name":"ours"},{"port":53,"name":"ours"}]}]}`,
			`{"list":[{"name":"a","ports":[{"port":53,"protocol":"TCP","name":"tcp"},{"port":53,"protocol":"UDP","name":"udp"}]}]}`,
			`{"list":[{"name":"a","ports":[{"port":53,"protocol":"UDP","name":"udp"},{"port":53,"name":"tcp"}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := ignoring(t, tt.entry)
			object, live := parse(t, tt.desired), parse(t, tt.live)
			if err := g.Check(object); err != nil {
				t.Fatal(err)
			}
			if err := g.Keep(object, live); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object, parse(t, tt.want)); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			g.Drop(object)
			if diff := cmp.Diff(live, parse(t, tt.live)); diff != "" {
				t.Errorf("the object itself has changed (-got +want):\n%s", diff)
			}
		})
	}
}

// Terrier refuses an entry that it can only guess the meaning of, and says what to
// write instead.
func TestIgnoredFieldsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ entry, desired, live, want string }{
		"a list without keys": {"$.rules[*].host", `{"rules":[{"host":"a"}]}`, `{}`, "ignoreFields[0]: $.rules[*].host: the elements of rules have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.rules"},
		"one in another list": {"$.list[*].args[*]", `{"list":[{"name":"a"},{"name":"b","args":["x"]}]}`, `{}`, "ignoreFields[0]: $.list[*].args[*]: the elements of list[*].args have no keys, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.list[*].args"},
		"the key itself":      {"$.list[*].name", `{"list":[{"name":"a"}]}`, `{}`, "ignoreFields[0]: $.list[*].name: name identifies the elements of list, so that it cannot be left to other managers; ignore the whole list instead: $.list"},
		"a list as a map":     {"$.list.image", `{"list":[{"name":"a"}]}`, `{}`, "ignoreFields[0]: $.list.image: list is a list; write list[*].image for the field of all of its elements"},
		"a map as a list":     {"$.spec[0]", `{"spec":{}}`, `{}`, "ignoreFields[0]: $.spec[0]: spec is no list, so that it has no element 0"},
		"a key twice": {"$.list[*].image", `{"list":[{"name":"a"},{"name":"a"}]}`, `{"list":[{"name":"a"}]}`,
			"ignoreFields[0]: $.list[*].image: list has several elements with name a, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.list"},
		"a key twice in the object": {"$.list[*].image", `{"list":[{"name":"a"}]}`, `{"list":[{"name":"a"},{"name":"a"}]}`,
			"ignoreFields[0]: $.list[*].image: list has several elements with name a, so that Terrier cannot tell which of them is which; ignore the whole list instead: $.list"},
		"a place after an insertion": {"$.args[0]", `{"args":["new","a"]}`, `{"args":["a"]}`,
			"ignoreFields[0]: $.args[0]: the elements of args have no keys, and the object has 1 of them while the template has 2, so that element 0 may be another one; ignore the whole list instead: $.args"},
		"a schema that could not be read": {"$.unread[*].a", `{"unread":[{"a":"1"}]}`, `{"unread":[{"a":"2"}]}`, "ignoreFields[0]: $.unread[*].a: unread: its schema cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ignoring(t, tt.entry)
			object := parse(t, tt.desired)
			err := g.Check(object)
			if err == nil {
				err = g.Keep(object, parse(t, tt.live))
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("the error is\n%v, want\n%s", err, tt.want)
			}
			if diff := cmp.Diff(object, parse(t, tt.desired)); diff != "" {
				t.Errorf("the object has changed (-got +want):\n%s", diff)
			}
		})
	}
}

// An object says nothing about fields that are left to other managers.
func TestIgnoredFieldsAreDropped(t *testing.T) {
	object := parse(t, `{"spec":{"replicas":1,"paused":true},"list":[{"name":"a","image":"x"},{"name":"b","image":"y"}],"args":["a"]}`)
	ignoring(t, "$.spec.replicas", "$.list[*].image", "$.args[0]", "$.nothing").Drop(object)
	want := parse(t, `{"spec":{"paused":true},"list":[{"name":"a"},{"name":"b"}],"args":["a"]}`)
	if diff := cmp.Diff(object, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

const forgetting = `{"format_version":"1.2","resource_changes":[
{"address":"a.gone","mode":"managed","type":"a","name":"gone","change":{"actions":["delete"],"before":{"id":"1"},"after":null}},
{"address":"module.m.a.left[0]","mode":"managed","type":"a","name":"left","provider_name":"example.com/x/a","change":{"actions":["forget"],"before":{"id":"i-2"},"after":null}},
{"address":"a.anew","mode":"managed","type":"a","name":"anew","change":{"actions":["create","forget"],"before":{"id":3},"after":{}}},
{"address":"a.nameless","mode":"managed","type":"a","name":"nameless","change":{"actions":["forget"],"before":{"id":null},"after":null}},
{"address":"a.hidden","mode":"managed","type":"a","name":"hidden","change":{"actions":["forget"],"before":{"id":"s3cr3t-id"},"before_sensitive":{"id":true},"after":null}},
{"address":"data.a.read","mode":"data","type":"a","name":"read","change":{"actions":["forget"],"before":{"id":"4"},"after":null}}]}`

// The list is read from the plan as it is stored: masked.
func TestForgottenListsWhatAnImportTakes(t *testing.T) {
	want := []stack.ForgottenResource{
		{Address: "module.m.a.left[0]", Type: "a", ID: "i-2", Provider: "example.com/x/a"},
		{Address: "a.anew", Type: "a", ID: "3"},
		{Address: "a.nameless", Type: "a"},
		{Address: "a.hidden", Type: "a"},
	}
	d := parse(t, parse(t, []byte(forgetting)).Masked())
	if diff := cmp.Diff(want, d.Forgotten()); diff != "" {
		t.Errorf("Forgotten() differs (-want +got):\n%s", diff)
	}
	if got := d.Changes().Forget; got != len(want) {
		t.Errorf("%d resources are counted as forgotten, want %d", got, len(want))
	}
}

func TestStillForgotten(t *testing.T) {
	forgotten := []stack.ForgottenResource{{Address: "a.x", Type: "a", ID: "1"}, {Address: "a.y", Type: "a", ID: "2"}, {Address: "b.x", Type: "b", ID: "1"}, {Address: "a.z", Type: "a"}}
	state := []byte(`{"resources":[{"mode":"managed","type":"a","name":"other","instances":[{"attributes":{"id":"1"}}]},
		{"mode":"managed","type":"a","name":"y","instances":[{"attributes":{"id":"9"}}]},
		{"mode":"managed","type":"a","name":"z","instances":[{"attributes":{}}]}]}`)
	got, err := StillForgotten(forgotten, state)
	if err != nil {
		t.Fatal(err)
	}
	// a.x is managed again under another address. Another object stands at a.y.
	if diff := cmp.Diff(forgotten[1:], got); diff != "" {
		t.Errorf("StillForgotten() differs (-want +got):\n%s", diff)
	}
	if got, err := StillForgotten(forgotten, nil); err != nil || len(got) != len(forgotten) {
		t.Errorf("without a state StillForgotten() = %+v, %v, want all of them", got, err)
	}
	if _, err := StillForgotten(forgotten, []byte("{")); err == nil {
		t.Error("a broken state was compared")
	}
}

package stack

import (
	"encoding/json"
	"testing"
)

// The shape of a stack without a plug-in is what it was before there were plug-ins: another
// one would void every approval.
func TestPluginIsNoPartOfOtherShapes(t *testing.T) {
	got, err := json.Marshal(Backend{Kind: Managed, Suffix: "a", InCluster: true})
	want := `{"Kind":"managed","Suffix":"a","Labels":null,"InCluster":true,"ConfigPath":"","Custom":""}`
	if err != nil || string(got) != want {
		t.Errorf("a managed backend is %s in the shape, want %s, %v", got, want, err)
	}
	with := func(settings map[string]string) string {
		return Configuration{Backend: Backend{Kind: Plugin, Plugin: "aws", Settings: settings}}.Shape()
	}
	if with(map[string]string{"s3": "a"}) == with(map[string]string{"s3": "b"}) {
		t.Error("two buckets have one shape")
	}
}

package policies

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Policy object of Weave judges the stacks that are its targets, once it is compiled. One
// that cannot be read holds them.
func TestPoliciesOfWeave(t *testing.T) {
	read := func(object map[string]any) (Weave, error) {
		w := Weave{Judges: object["judges"] != "no", Text: Text{ID: "text of " + object["ns"].(string)}}
		w.Selects = func(kind, namespace, name string, _ map[string]string) bool {
			return kind == "Terraform" && namespace == object["ns"] && name == "net"
		}
		if object["wrong"] != nil {
			return w, errors.New("a parameter needs a value")
		}
		return w, nil
	}
	p := having(t, nil)
	p.Weave, p.Log = read, slog.New(slog.NewTextHandler(io.Discard, nil))
	object := func(name string, fields map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: fields}
		u.SetName(name)
		u.SetUID(types.UID(name))
		return u
	}
	compiled := func(objects ...*unstructured.Unstructured) {
		s := &snapshot{}
		for _, u := range objects {
			if c := compileWeave(p, u, nil); c != nil {
				s.policies = append(s.policies, c)
			}
		}
		p.now.Store(s)
	}
	good, wrong := object("good", map[string]any{"ns": "a"}), object("wrong", map[string]any{"ns": "b", "wrong": true})
	off := object("off", map[string]any{"ns": "a", "judges": "no"})
	compiled(good, wrong, off)
	if _, err := p.For(t.Context(), stackOf("a", "net", nil, nil)); err == nil || !strings.Contains(err.Error(), "the program of Policy.pac.weave.works/good is not compiled yet") {
		t.Errorf("For() has the error %v, want that the stack waits", err)
	}
	p.builds.known["text of a"].built = &built{program: struct{}{}, digest: "d"}
	compiled(good, wrong, off)
	for _, tt := range []struct {
		stack client.Object
		want  []string
	}{
		{stackOf("a", "net", nil, nil), []string{"Policy.pac.weave.works/good"}},
		{stackOf("a", "other", nil, nil), nil},
		{stackOf("b", "net", nil, nil), []string{"Policy.pac.weave.works/wrong"}},
		{stackOf("c", "net", nil, nil), nil},
	} {
		if d := cmp.Diff(tt.want, judges(t, p, tt.stack)); d != "" {
			t.Errorf("%s/%s: %s", tt.stack.GetNamespace(), tt.stack.GetName(), d)
		}
	}
	a := asked(t, p, stackOf("b", "net", nil, nil), "unchanged.json")
	if len(a.Findings) != 1 || !a.Findings[0].Error || !strings.Contains(a.Findings[0].Message, "spec: a parameter needs a value") {
		t.Errorf("Review() = %+v, want a hold", a)
	}
	p.builds.known["text of a"].built = &built{err: errors.New("line 3")}
	compiled(good)
	if a := asked(t, p, stackOf("a", "net", nil, nil), "unchanged.json"); len(a.Findings) != 1 || !a.Findings[0].Error {
		t.Errorf("Review() = %+v, want a hold by a program that does not compile", a)
	}
}

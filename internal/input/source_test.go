package input

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
)

// objects is a cluster with these objects, by kind and name.
type objects map[string]map[string]string

func (o objects) Read(_ context.Context, ref stack.Ref) (map[string][]byte, []string, error) {
	held, ok := o[ref.Kind+"/"+ref.Name]
	if !ok {
		return nil, nil, fault.New(fault.Missing, "", fmt.Errorf("%s %s does not exist", ref.Kind, ref.Name))
	}
	data, public := map[string][]byte{}, []string(nil)
	for key, value := range held {
		data[key] = []byte(value)
		if ref.Kind == ConfigMap {
			public = append(public, key)
		}
	}
	return data, public, nil
}

// The digest of inputs is part of every approval: with another one each pending
// plan would be void after an upgrade. Change these digests only if approvals
// may be lost, and say so in docs/compatibility.md.
func TestDigestsStayTheSame(t *testing.T) {
	c := everything()
	c.Vars = append(c.Vars, stack.Var{Name: "n", Value: json.RawMessage(`12345678901234567890`)})
	c.VarsFrom = []stack.VarsFrom{{Kind: "Secret", Name: "creds"}, {Kind: "ConfigMap", Name: "config", Keys: []string{"ZONE:zone"}}}
	r := Resolver{
		Key: secret.New("key"), Configuration: c,
		Object: Object{Namespace: "ns", Name: "stack", UID: "u-1", Labels: map[string]string{"team": "net"}, Annotations: map[string]string{"a/b": "\"${x}"}},
		Reader: objects{
			"Secret/creds":     {"API_TOKEN": "token-canary-1", "REGION": "north", "file": "file-canary-1", "not.a.name": "x"},
			"Secret/backend":   {"bucket": "b", "access_key": "access-canary-1"},
			"Secret/rc":        {"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-1\"\n}\n"},
			"ConfigMap/config": {"ZONE": "z"},
		},
	}
	got, err := r.Resolve(t.Context(), Module{})
	if err != nil {
		t.Fatal(err)
	}
	want := [2]string{"hmac-sha256:a63229ded5d4fd3d6bb2b578cc6d6caa213753fc1cb30cdd0f6251340376133f", "hmac-sha256:3ff2b0025014ef151b129399f7fc8d7fb7ca62a19017d9cc40363b3ea41c5410"}
	if diff := cmp.Diff(want, [2]string{got.Digest, got.Credentials}); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
}

func TestReferences(t *testing.T) {
	c := everything()
	c.Source = &stack.Ref{Kind: "GitRepository", Namespace: "sources", Name: "modules"}
	c.Inputs = []stack.Input{{Secret: "net-outputs", As: "net"}}
	c.VarsFrom = []stack.VarsFrom{{Kind: "ConfigMap", Name: "vars"}}
	c.Outputs = &stack.Outputs{Secret: "out"}
	c.DependsOn = []stack.Ref{{Kind: "Terraform", Name: "near"}, {Kind: "Terraform", Namespace: "far", Name: "away"}}
	at := func(kind, name string) stack.Ref { return stack.Ref{Kind: kind, Namespace: "ns", Name: name} }
	want := Refs{
		Source: c.Source,
		Reads: []stack.Ref{
			at(ConfigMap, "vars"), at(Secret, "net-outputs"), at(ConfigMap, "config"), at(Secret, "creds"), at(Secret, "nope"),
			at(Secret, "creds"), at(ConfigMap, "config"), at(Secret, "creds"), at(Secret, "creds"), at(Secret, "backend"), at(Secret, "rc"),
		},
		Writes:    &stack.Ref{Kind: Secret, Namespace: "ns", Name: "out"},
		DependsOn: []stack.Ref{at("Terraform", "near"), {Kind: "Terraform", Namespace: "far", Name: "away"}},
	}
	if diff := cmp.Diff(want, References(c, "ns")); diff != "" {
		t.Errorf("References() (-want +got):\n%s", diff)
	}
}

// What a value says of itself reaches the inputs: the first that ends counts,
// and another version is another digest although the data read the same.
func TestValuesSayHowLongTheyAreValidAndWhichVersionTheyAre(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	digest := func(versions ...string) (string, time.Time) {
		s := Resolver{Key: secret.New("key")}.begin()
		for i, v := range versions {
			s.note(Value{Version: v, Until: start.Add(time.Duration(len(versions)-i) * time.Hour)})
		}
		var out Inputs
		if err := s.resolve(t.Context(), Module{}, &out); err != nil {
			t.Fatal(err)
		}
		return out.Digest, out.Until
	}
	one, until := digest("1", "1")
	if want := start.Add(time.Hour); !until.Equal(want) {
		t.Errorf("the inputs are valid until %v, want %v", until, want)
	}
	if again, _ := digest("1", "1"); again != one {
		t.Error("the same versions have another digest")
	}
	if other, _ := digest("1", "2"); other == one {
		t.Error("another version has the same digest")
	}
	if none, until := digest(); none == one || !until.IsZero() {
		t.Errorf("without versions: %s until %v", none, until)
	}
}

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

func aState(serial int, names ...string) []byte {
	var resources []string
	for _, n := range names {
		resources = append(resources, fmt.Sprintf(`{"mode":"managed","type":"t","name":%q,"instances":[{"attributes":{"id":%q,"password":"hunter22"}}]}`, n, n))
	}
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":"l","outputs":{"o":{"value":"topsecret","type":"string","sensitive":true}},"resources":[%s]}`, serial, strings.Join(resources, ","))
}

// withStates stores a state for the stack, and keeps versions of it.
func (e estate) withStates(t *testing.T, versions ...[]byte) kube.StateRef {
	t.Helper()
	ref := kube.StateRef{Namespace: e.cluster.Namespace, Workspace: "default", Suffix: "network"}
	states := kube.States{Client: e.cluster.Client, Now: e.Now}
	var list stack.StateVersions
	prefix := "stacks/" + string(e.object(t).UID) + "/"
	for _, b := range versions {
		if err := states.Save(t.Context(), ref, kube.Owner{Name: "network"}, b); err != nil {
			t.Fatal(err)
		}
		f, err := stack.ReadState(b)
		if err != nil {
			t.Fatal(err)
		}
		v := stack.StateVersion{Lineage: f.Lineage, Serial: f.Serial, Digest: f.Digest, Bytes: f.Bytes, Resources: f.Resources, By: "apply-1", At: e.ago(time.Minute)}
		list.With(v)
		list.Head = f.StateID
		e.records[prefix+"states/"+v.Key()] = string(b)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	e.records[prefix+"states/index.json"] = string(raw)
	e.records[prefix+"rescued/apply-0.tfstate"] = "rescued"
	return ref
}

func TestStateCommands(t *testing.T) {
	e := newEstate(t)
	e.withStates(t, aState(3, "a", "b"), aState(7, "b"))
	file := filepath.Join(t.TempDir(), "pulled")
	pushed := filepath.Join(t.TempDir(), "pushed")
	if err := os.WriteFile(pushed, aState(5, "c"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.dialogue(t, []line{
		{"state list", 0, []string{"network", "7", "tfstate-default-network"}, ""},
		{"state list network", 0, []string{"t.b\n"}, "t.a"},
		{"state show network", 0, []string{"# t.b", `id = "b"`, "o = "}, "hunter22"},
		{"state show network -o json", 0, []string{`"serial": 7`}, "topsecret"},
		{"state show network t.b --reveal", 0, []string{"hunter22"}, ""},
		{"state show network --version 3", 0, []string{"# t.a"}, "topsecret"},
		{"state show network t.z", 4, []string{"holds no t.z"}, ""},
		{"state versions network", 0, []string{"current", "apply-1", "--rescued apply-0"}, ""},
		{"state pull network --version 3", 0, []string{`"serial":3`}, ""},
		{"state pull network --rescued apply-0", 0, []string{"rescued"}, ""},
		{"state pull network --version 4", 4, []string{"terrier state versions"}, ""},
		{"state pull network -o " + file, 0, nil, ""},
		{"state push network " + pushed + " --yes", 5, []string{"does not follow", "--force"}, ""},
		{"state rollback network 3", 2, []string{"+ t.a (added to the state)", "with serial 8?", "--yes"}, "now has serial 8"},
		{"state rollback network 3 --yes", 0, []string{"now has serial 8"}, ""},
		{"state push network " + pushed + " --force --yes", 0, []string{"- t.a (removed from the state)", "now has serial 9"}, ""},
		{"state lock network --reason by-hand", 0, []string{"is locked by"}, ""},
		{"state list network", 0, []string{"t.c"}, ""},
		{"state unlock network nonsense", 5, []string{"not nonsense"}, ""},
		{"state unlock network", 0, []string{"Released the lock"}, ""},
		{"state unlock network", 5, []string{"is not locked"}, ""},
		{"state accept network", 2, []string{"There is no terminal", "use --yes"}, ""},
		{"state accept network --yes", 0, []string{"serial 9"}, ""},
		{"state push network -", 2, []string{"--yes"}, ""},
		{"state pull network --version 3 --rescued x", 2, []string{"exclude each other"}, ""},
	})
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != int64(len(aState(7, "b"))) {
		t.Errorf("the file is %v, %v; want the state, for its owner only", info, err)
	}
}

// The question to a user who accepts a state says what is wrong with it.
func TestAcceptingAState(t *testing.T) {
	e := newEstate(t)
	e.withStates(t, aState(7, "a"))
	known := stack.Status{StoredState: stack.StoredState{KnownState: stateID(t, aState(7, "a"))}}
	phase := func(p stack.Reason, m stack.Status) {
		t.Helper()
		e.remember(t, m)
		o := e.object(t)
		o.Status.Terrier.Phase = string(p)
		if err := e.cluster.Client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	phase(stack.NoDrift, known)
	e.dialogue(t, []line{{"state accept network", 5, []string{"there is nothing to accept", "whose status is " + string(stack.NoDrift), "terrier explain STACK"}, "There is no terminal"}})
	phase(stack.StateTampered, known)
	e.dialogue(t, []line{{"state accept network", 2, []string{"Accept the stored state of ", "in place of the version that Terrier expects?", "--yes"}, "a second time"}})
	missing := stack.ExpectedState{Last: stack.LastState{Place: "a", In: "the backend aws", Lineage: "l", Serial: 7, Resources: 5}, Place: "b", In: "the Secret"}.Check(stack.StateFacts{})
	known.Missing = missing
	phase(stack.StateMissing, known)
	e.dialogue(t, []line{
		{"state accept network", 2, []string{"--reason: the last known state of the stack", "terrier state accept network -n " + e.cluster.Namespace + " --reason TEXT"}, "terminal"},
		{"state accept network --yes", 2, []string{"--reason TEXT"}, "Accepted"},
		{"state accept network --reason closed", 2, []string{"continue without its last known state? Resources that are not in the state that is there are created a second time", "--yes"}, "that Terrier expects?"},
		{"state accept network --reason closed --yes", 0, []string{"Accepted for ", "terrier retained show network"}, ""},
	})
}

func stateID(t *testing.T, state []byte) stack.StateID {
	t.Helper()
	f, err := stack.ReadState(state)
	if err != nil {
		t.Fatal(err)
	}
	return f.StateID
}

package plan

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

// stream parses a recorded stream, every line of which must be an event.
func stream(t *testing.T, name string) []Event {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []Event
	for lines := bufio.NewScanner(f); lines.Scan(); {
		e, err := ParseEvent(lines.Bytes())
		if err != nil {
			t.Fatalf("ParseEvent(%s): %v", lines.Bytes(), err)
		}
		if HeadOf(e).Message == "" || HeadOf(e).At.IsZero() {
			t.Errorf("event without message or time: %#v", e)
		}
		events = append(events, e)
	}
	return events
}

// of returns the events of one type.
func of[E Event](events []Event) []E {
	var out []E
	for _, e := range events {
		if e, ok := e.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

func TestEveryRecordedEventIsOfAKnownType(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 6 {
		t.Fatalf("testdata holds %d streams (%v), want at least 6", len(files), err)
	}
	for _, file := range files {
		events := stream(t, filepath.Base(file))
		for _, o := range of[Other](events) {
			t.Errorf("%s: event type %q is unknown", file, o.Type)
		}
		v, ok := events[0].(Version)
		if !ok || v.Engine != "tofu" || v.Version != "1.12.6" {
			t.Errorf("%s begins with %#v, want the version of tofu", file, events[0])
		}
	}
}

func TestStreamOfAPlan(t *testing.T) {
	events := stream(t, "plan.jsonl")

	got := map[string]Action{}
	for _, p := range of[Planned](events) {
		got[p.Resource.Address] = p.Action
	}
	want := map[string]Action{
		"terraform_data.created":               Create,
		"terraform_data.updated":               Update,
		"terraform_data.replaced":              Replace,
		"terraform_data.gone":                  Delete,
		"module.child.terraform_data.inner[0]": Delete,
		"terraform_data.forgotten":             Forget,
		"terraform_data.new_name":              Move,
		"terraform_data.adopted":               Import,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("planned changes (-want +got):\n%s", diff)
	}

	summary := of[Summary](events)
	if len(summary) != 1 || summary[0].Operation != "plan" {
		t.Fatalf("summaries = %+v, want one of a plan", summary)
	}
	if got, want := summary[0].Changes, (stack.Changes{Add: 2, Change: 1, Destroy: 3, Import: 1, Forget: 1}); got != want {
		t.Errorf("summary = %+v, want %+v", got, want)
	}

	outputs := of[OutputValues](events)[0].Outputs
	if o := outputs["token"]; !o.Sensitive || o.Action != Update || o.Value != nil {
		t.Errorf("output token = %+v, want a sensitive update without a value", o)
	}
	d := of[Diagnosed](events)[0].Diagnostic
	if d.Severity != "warning" || d.Summary != "Resource will be removed from the state" {
		t.Errorf("diagnostic = %+v, want the warning about the removed resource", d)
	}
}

func TestStreamOfAnApply(t *testing.T) {
	events := stream(t, "apply.jsonl")
	var started, progressed, completed []string
	for _, a := range of[Applied](events) {
		switch a.Stage {
		case Started:
			started = append(started, a.Resource.Address)
		case Progressed:
			progressed = append(progressed, a.Resource.Address)
		case Completed:
			completed = append(completed, a.Resource.Address)
			if a.IDKey != "id" && a.Action == Create {
				t.Errorf("%s was created without an id: %+v", a.Resource.Address, a)
			}
		}
	}
	for name, list := range map[string][]string{"started": started, "completed": completed} {
		if !slices.Contains(list, "terraform_data.created") || !slices.Contains(list, "terraform_data.gone") {
			t.Errorf("%s = %v, want created and gone among them", name, list)
		}
	}
	if !slices.Equal(progressed, []string{"terraform_data.created"}) {
		t.Errorf("progressed = %v, want the one that takes eleven seconds", progressed)
	}
	outputs := of[OutputValues](events)
	final := outputs[len(outputs)-1].Outputs
	if got := string(final["size"].Value); got != "12345678901234567891" {
		t.Errorf("output size = %s, want every digit of it", got)
	}
	if o := final["token"]; !o.Sensitive || o.Value != nil {
		t.Errorf("output token = %+v, want it hidden by the engine", o)
	}
}

func TestStreamsOfFailures(t *testing.T) {
	events := stream(t, "apply-failed.jsonl")
	applied := of[Applied](events)
	if last := applied[len(applied)-1]; last.Stage != Errored || last.Resource.Address != "terraform_data.fails" {
		t.Errorf("last stage = %+v, want the error of terraform_data.fails", last)
	}
	provisioned := of[Provisioned](events)
	if last := provisioned[len(provisioned)-1]; last.Stage != Errored || last.Provisioner != "local-exec" {
		t.Errorf("last provisioner event = %+v, want an error of local-exec", last)
	}

	got := of[Diagnosed](stream(t, "plan-failed.jsonl"))[0].Diagnostic
	want := Diagnostic{
		Severity: "error",
		Summary:  "Reference to undeclared input variable",
		Detail:   `An input variable with the name "nowhere" has not been declared. This variable can be declared with a variable "nowhere" {} block.`,
		File:     "main.tf", Line: 2, Snippet: "  input = var.nowhere",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostic (-want +got):\n%s", diff)
	}
}

func TestStreamOfADrift(t *testing.T) {
	drifted := of[Drifted](stream(t, "drift-found.jsonl"))
	if len(drifted) != 1 || drifted[0].Resource.Address != "local_file.motd" || drifted[0].Action != Delete {
		t.Errorf("drift = %+v, want the file that was deleted", drifted)
	}
}

func TestParseEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		line string
		want func(Event) bool
	}{
		"drift": {
			`{"@level":"info","@message":"a.b: Drift detected (update)","type":"resource_drift","change":{"resource":{"addr":"a.b"},"action":"update"}}`,
			func(e Event) bool {
				d, ok := e.(Drifted)
				return ok && d.Resource.Address == "a.b" && d.Action == Update
			},
		},
		"terraform calls its version otherwise": {
			`{"@level":"info","@message":"Terraform 1.9.0","type":"version","terraform":"1.9.0","ui":"1.2"}`,
			func(e Event) bool { v, ok := e.(Version); return ok && v.Engine == "terraform" && v.Version == "1.9.0" },
		},
		"an emergency dump keeps the state": {
			`{"@level":"info","@message":"Emergency state dump","type":"log","state":{"serial":7}}`,
			func(e Event) bool { l, ok := e.(Log); return ok && string(l.State) == `{"serial":7}` },
		},
		"a type of the future is kept whole": {
			`{"@level":"info","@message":"m","type":"weather","rain":true}`,
			func(e Event) bool {
				o, ok := e.(Other)
				return ok && o.Type == "weather" && strings.Contains(string(o.Raw), "rain")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseEvent([]byte(tt.line))
			if err != nil || !tt.want(got) {
				t.Errorf("ParseEvent() = %#v, %v", got, err)
			}
		})
	}
}

func TestTextIsNoEvent(t *testing.T) {
	for _, line := range []string{"", "Warning: something", "{", `"text"`, `{"hello":1}`, `[1]`, "panic: runtime error"} {
		if e, err := ParseEvent([]byte(line)); err == nil {
			t.Errorf("ParseEvent(%q) = %#v, want an error", line, e)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.jsonl")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f.Add([]byte(line))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := ParseEvent(line)
		if (e == nil) != (err != nil) {
			t.Errorf("ParseEvent() = %#v, %v: want either an event or an error", e, err)
		}
	})
}

package engine

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestInvocation(t *testing.T) {
	for line, want := range map[string]struct {
		name, dir, operands, planning, applying string
		streams, touches                        bool
	}{
		"":                         {},
		"-version":                 {},
		"apply":                    {name: "apply", planning: "plan -out=P", applying: "apply S", streams: true, touches: true},
		"-chdir=x/y apply":         {name: "apply", dir: "x/y", planning: "-chdir=x/y plan -out=P", applying: "-chdir=x/y apply S", streams: true, touches: true},
		"apply -auto-approve":      {name: "apply", planning: "plan -out=P", applying: "apply S", streams: true, touches: true},
		"apply -auto-approve p":    {name: "apply", operands: "p", planning: "plan -out=P", applying: "apply S", streams: true, touches: true},
		"apply -var a=1 -target b": {name: "apply", planning: "plan -out=P -var a=1 -target b", applying: "apply -var a=1 S", streams: true, touches: true},
		"apply --var=a=1 -lock=false -destroy p": {name: "apply", operands: "p", planning: "plan -out=P --var=a=1 -lock=false -destroy",
			applying: "apply --var=a=1 -lock=false S", streams: true, touches: true},
		"apply -json":         {name: "apply", planning: "plan -out=P", applying: "apply S", touches: true},
		"plan -json-into f":   {name: "plan", planning: "plan -out=P", applying: "apply S", touches: true},
		"plan -help":          {name: "plan", planning: "plan -out=P -help", applying: "apply S"},
		"init -backend=false": {name: "init", planning: "plan -out=P -backend=false", applying: "apply S"},
		"state rm -- -x":      {name: "state", operands: "rm -- -x", planning: "plan -out=P", applying: "apply S", touches: true},
	} {
		i := ParseInvocation(strings.Fields(line))
		join := func(texts []string) string { return strings.Join(texts, " ") }
		if i.Name != want.name || i.Dir() != want.dir || join(i.Operands()) != want.operands {
			t.Errorf("%q is %q in %q of %q, want %+v", line, i.Name, i.Dir(), i.Operands(), want)
		}
		if i.Streams("tofu", "1.12.6") != want.streams || i.Streams("terraform", "1.14.0") || i.Streams("tofu", "1.11.9") || i.TouchesState() != want.touches {
			t.Errorf("%q streams %v and touches a state %v, want %+v", line, i.Streams("tofu", "1.12.6"), i.TouchesState(), want)
		}
		if want.name == "" {
			continue
		}
		if got := join(i.Planning("P")); got != want.planning {
			t.Errorf("%q is planned by %q, want %q", line, got, want.planning)
		}
		if got := join(i.Applying("tofu", "S")); got != want.applying {
			t.Errorf("%q applies a saved plan by %q, want %q", line, got, want.applying)
		}
	}
}

func TestDeclaredBackend(t *testing.T) {
	for content, want := range map[string]string{
		"terraform {\n  backend \"s3\" {\n    bucket = \"x\"\n  }\n}\n":  "s3",
		"terraform {\n  cloud {\n  }\n}\n":                               "cloud",
		"# terraform { backend \"s3\" {} }\nresource \"a\" \"b\" {\n}\n": "",
		"terraform {\n  required_version = \"1\"\n}\n":                   "",
		`{"terraform": {"backend": {"gcs": {"bucket": "x"}}}}`:           "gcs",
		`{"terraform": [{"cloud": {}}]}`:                                 "cloud",
		`{"resource": {"backend": {"x": {}}}}`:                           "",
	} {
		name := "main.tf"
		if strings.HasPrefix(content, "{") {
			name += ".json"
		}
		got, err := DeclaredBackend(fstest.MapFS{name: {Data: []byte(content)}})
		if err != nil || got != want {
			t.Errorf("%s declares %q, %v; want %q", content, got, err, want)
		}
	}
}

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

func TestOnlyReads(t *testing.T) {
	for line, want := range map[string]bool{
		"": true, "-version": true, "plan -destroy -out p": true, "init -reconfigure": true, "show -json p": true, "state list": true, "workspace show": true,
		"apply": false, "apply -help": false, "destroy -auto-approve": false, "refresh": false, "import a b": false, "taint a": false, "untaint a": false,
		"test": false, "force-unlock -force x": false, "state": false, "state rm a": false, "state mv a b": false, "state push x": false,
		"state replace-provider a b": false, "workspace new x": false, "workspace delete x": false, "workspace select x": false,
		"init -migrate-state": false, "init -force-copy": false, "init -test-directory x --force-copy=true": false, "a-new-command": false,
	} {
		if got := ParseInvocation(strings.Fields(line)).OnlyReads(); got != want {
			t.Errorf("%q only reads: %v, want %v", line, got, want)
		}
	}
	if ParseInvocation([]string{"", "destroy"}).OnlyReads() {
		t.Error("an empty argument hides the command")
	}
}

func TestHere(t *testing.T) {
	i := ParseInvocation([]string{"-chdir=x", "plan", "-chdir=y"}).Here()
	if got := strings.Join(i.Args, " "); got != "plan -chdir=y" || i.Name != "plan" || i.Dir() != "" || strings.Join(i.With("-a"), " ") != "plan -a -chdir=y" {
		t.Errorf("the command is %q with the name %q", got, i.Name)
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

package workdir

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

func targetOutputs() map[string]Output {
	out := map[string]Output{}
	for name, value := range map[string]string{
		"host": `"db.example.com"`, "port": `5432`, "big": `12345678901234567890`, "none": `null`,
		"db": `{"host": "inner", "ports": [1, 2]}`, "url": `"https://x.example.com/ready?a=b"`,
		"evil": `"x\nHost: y"`, "like": `"{{ .host }}"`,
	} {
		out[name] = Output{Value: json.RawMessage(value)}
	}
	out["token"] = Output{Value: json.RawMessage(`"s3cr3t"`), Sensitive: true}
	out["creds"] = Output{Value: json.RawMessage(`{"key": "s3cr3t"}`), Sensitive: true}
	return out
}

func TestTarget(t *testing.T) {
	for text, want := range map[string]struct{ target, shown string }{
		"https://example.com/":                    {"https://example.com/", ""},
		"${{ .host }}:${{ .port }}":               {"db.example.com:5432", ""},
		"{{.host}}:{{.port}}":                     {"db.example.com:5432", ""},
		"${{ .host }}:{{ .port }}":                {"db.example.com:5432", ""},
		"${{ .url }}":                             {"https://x.example.com/ready?a=b", ""},
		"{{ .db.host }}:{{ index .db.ports 1 }}":  {"inner:2", ""},
		"{{ $.host }}:1":                          {"db.example.com:1", ""},
		"x/{{ .big }}":                            {"x/12345678901234567890", ""},
		"{{ if .none }}a{{ else }}b{{ end }}:80":  {"b:80", ""},
		`{{ with .db }}{{ .host }}{{ end }}:80`:   {"inner:80", ""},
		`{{ range .db.ports }}{{ . }}{{ end }}:1`: {"12:1", ""},
		"{{ .like }}":                             {"{{ .host }}", ""}, // what an output holds is no template
		"http://h/?t=${{ .token }}":               {"http://h/?t=s3cr3t", "http://h/?t=(sensitive)"},
		"http://h/?t={{ urlquery .token }}":       {"http://h/?t=s3cr3t", "http://h/?t=%28sensitive%29"},
		`http://h/{{ printf "%.3s" .token }}`:     {"http://h/s3c", "http://h/(se"}, // nothing of it, not even a part
		"http://h/?t={{ .creds.key }}":            {"http://h/?t=s3cr3t", "http://h/?t={{ .creds.key }}"},
		"http://h/{{ .evil }}":                    {"http://h/x\nHost: y", ""}, // its caller refuses it
	} {
		if want.shown == "" {
			want.shown = want.target
		}
		target, shown, err := Target(text, targetOutputs())
		if target != want.target || shown != want.shown || err != nil {
			t.Errorf("Target(%q) = %q, %q, %v; want %q, %q", text, target, shown, err, want.target, want.shown)
		}
	}
}

func TestTargetsThatCannotBeRendered(t *testing.T) {
	for text, want := range map[string]string{
		"{{ .gone }}:80":                             `the module has no output "gone"`,
		"{{ $.gone }}:80":                            `the module has no output "gone"`,
		`{{ printf "%s" (printf "%s" .gone) }}`:      `the module has no output "gone"`,
		"{{ if .gone }}a{{ end }}":                   `the module has no output "gone"`,
		"{{ range .db.ports }}{{ else }}{{ .gone }}": `reading the template`,
		"{{ .none }}:80":                             "an output that it needs is null or not there",
		`{{ index . "my-output" }}:80`:               "an output that it needs is null or not there",
		"{{ .db.gone }}:80":                          `no entry for key "gone"`,
		"{{ .host":                                   "reading the template",
		"{{ call .host }}":                           "rendering the template",
		"{{ range $i := .big }}{{ end }}":            "rendering the template",
	} {
		target, shown, err := Target(text, targetOutputs())
		if target != "" || err == nil || !strings.Contains(err.Error(), want) || fault.Of(err) != fault.Invalid {
			t.Errorf("Target(%q) = %q, %v; want it Invalid: %s", text, target, err, want)
		}
		if strings.Contains(shown, "s3cr3t") || shown == "" {
			t.Errorf("Target(%q) is shown as %q", text, shown)
		}
	}
	if _, _, err := Target("x", map[string]Output{"a": {Value: json.RawMessage("{")}}); err == nil {
		t.Error("outputs that are no JSON are taken")
	}
}

package engine

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/terrier-iac/terrier/internal/plan"
)

const httpBackend = "terraform {\n  backend \"http\" {\n  }\n}\n"

// builtInOnly is what may go without init: all kinds of blocks, none of them
// another provider's.
const builtInOnly = `
terraform {
  required_version = ">= 1.5"
}
variable "provider" {
  default = "module \"x\" {}"
}
locals { provider = "aws" }
# provider "aws" {}
resource "terraform_data" "a" {
  input = <<-EOT
    provider "aws" {}
  EOT
  provisioner "local-exec" {
    command = "true"
  }
  lifecycle {
    replace_triggered_by = [terraform_data.b]
  }
}
resource terraform_data b {
  count = 2
}
data "terraform_remote_state" "c" {
  backend = "local"
  config  = { provider = "x" }
}
moved {
  from = terraform_data.d
  to   = terraform_data.b
}
check "d" {
  data "terraform_remote_state" "d" {
    backend = "local"
  }
  assert {
    condition     = true
    error_message = "x"
  }
}
output "o" {
  value = terraform_data.a.output
}
`

func TestSelfContained(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // in what asks for init; empty if nothing does
	}{
		"nothing at all":            {},
		"built-in things":           {files: map[string]string{"main.tf": builtInOnly}},
		"what engines do not read":  {files: map[string]string{".hidden.tf": "module \"x\" {}", "main.tf.bak": "provider", "a.tfvars": "provider = \"::\"", "b.tofutest.hcl": "provider \"a\" {}", "sub/main.tf": "module \"x\" {}"}},
		"an override of a resource": {files: map[string]string{"main.tf": builtInOnly, "z_override.tf": "resource \"terraform_data\" \"a\" {\n  input = 2\n}\n"}},
		"JSON": {files: map[string]string{"main.tf.json": `{"//": "x", "terraform": {"required_version": ">= 1.5"}, "variable": {"v": {}},
			"resource": {"terraform_data": {"a": {"input": {"provider": 1}}, "b": [{"count": 2}]}}, "data": [{"terraform_remote_state": {"c": {"backend": "local"}}}],
			"locals": {"provider": "aws"}, "output": {"o": {"value": "${terraform_data.a.output}"}}}`}},

		"a resource of another provider":         {files: map[string]string{"main.tf": "resource \"null_resource\" \"a\" {\n}\n"}, want: "resource null_resource.a"},
		"a type that only begins alike":          {files: map[string]string{"main.tf": "resource \"terraformer_data\" \"a\" {\n}\n"}, want: "resource terraformer_data.a"},
		"one for the other engine only":          {files: map[string]string{"a.tf": "", "a.tofu": "resource \"null_resource\" \"a\" {\n}\n"}, want: "a.tofu: resource null_resource.a"},
		"a data source of another provider":      {files: map[string]string{"main.tf": "data \"external\" \"a\" {\n}\n"}, want: "data external.a"},
		"an ephemeral resource":                  {files: map[string]string{"main.tf": "ephemeral \"random_password\" \"a\" {\n}\n"}, want: "ephemeral random_password.a"},
		"a data source in a check":               {files: map[string]string{"main.tf": "check \"a\" {\n  data \"http\" \"b\" {\n  }\n}\n"}, want: "data http.b"},
		"a resource that chooses its provider":   {files: map[string]string{"main.tf": "resource \"terraform_data\" \"a\" {\n  provider = x\n}\n"}, want: "chooses its provider"},
		"a resource without a name":              {files: map[string]string{"main.tf": "resource \"terraform_data\" {\n}\n"}, want: "resource terraform_data"},
		"a module":                               {files: map[string]string{"main.tf": "module \"x\" {\n  source = \"./x\"\n}\n"}, want: "a block module"},
		"a provider block":                       {files: map[string]string{"main.tf": "provider \"terraform\" {\n}\n"}, want: "a block provider"},
		"an import":                              {files: map[string]string{"main.tf": "import {\n  to = terraform_data.a\n  id = \"x\"\n}\n"}, want: "a block import"},
		"something removed":                      {files: map[string]string{"main.tf": "removed {\n  from = null_resource.a\n}\n"}, want: "a block removed"},
		"a block of a later release":             {files: map[string]string{"main.tf": "action \"terraform_data\" \"a\" {\n}\n"}, want: "a block action"},
		"required providers":                     {files: map[string]string{"main.tf": "terraform {\n  required_providers {\n  }\n}\n"}, want: "terraform has required_providers"},
		"required providers in an override":      {files: map[string]string{"x_override.tf": "terraform {\n  required_providers {\n    terraform = { source = \"acme/x\" }\n  }\n}\n"}, want: "terraform has required_providers"},
		"a cloud":                                {files: map[string]string{"main.tf": "terraform {\n  cloud {\n  }\n}\n"}, want: "terraform has cloud"},
		"encryption":                             {files: map[string]string{"main.tf": "terraform {\n  encryption {\n  }\n}\n"}, want: "terraform has encryption"},
		"metadata for a provider":                {files: map[string]string{"main.tf": "terraform {\n  provider_meta \"x\" {\n  }\n}\n"}, want: "terraform has provider_meta"},
		"experiments":                            {files: map[string]string{"main.tf": "terraform {\n  experiments = []\n}\n"}, want: "terraform has experiments"},
		"a function of a provider":               {files: map[string]string{"main.tf": "locals {\n  a = provider::aws::arn_parse(\"x\")\n}\n"}, want: "a function of a provider"},
		"one in a template":                      {files: map[string]string{"main.tf": "locals {\n  a = \"${provider::aws::arn_parse(\"x\")}\"\n}\n"}, want: "a function of a provider"},
		"a backend of the module":                {files: map[string]string{"main.tf": "terraform {\n  backend \"s3\" {\n  }\n}\n"}, want: "terraform has backend"},
		"a second one like ours":                 {files: map[string]string{"main.tf": httpBackend}, want: "there are 2 backend blocks"},
		"one with settings, after ours":          {files: map[string]string{"z_override.tf": "terraform {\n  backend \"http\" {\n    address = \"http://elsewhere\"\n  }\n}\n"}, want: "terraform has backend"},
		"what cannot be read":                    {files: map[string]string{"main.tf": "resource \"terraform_data\" \"a\" {\n"}, want: "main.tf: the block resource has no end"},
		"an attribute outside of blocks":         {files: map[string]string{"main.tf": "a = 1\n"}, want: "the attribute a"},
		"JSON: a resource of another provider":   {files: map[string]string{"a.tf.json": `{"resource": [{"terraform_data": {}}, {"null_resource": {"a": {}}}]}`}, want: "resource null_resource"},
		"JSON: a name twice":                     {files: map[string]string{"a.tf.json": `{"resource": {"terraform_data": {"a": {}}}, "resource": {"null_resource": {"a": {}}}}`}, want: "resource null_resource"},
		"JSON: a resource with another provider": {files: map[string]string{"a.tofu.json": `{"resource": {"terraform_data": {"a": [{"count": 1}, {"provider": "x"}]}}}`}, want: "chooses its provider"},
		"JSON: a module":                         {files: map[string]string{"a.tf.json": `{"module": {"x": {"source": "./x"}}}`}, want: "a block module"},
		"JSON: a check":                          {files: map[string]string{"a.tf.json": `{"check": {"x": {}}}`}, want: "a block check"},
		"JSON: a backend with settings":          {files: map[string]string{"a.tf.json": `{"terraform": {"backend": {"http": {"address": "x"}}}}`}, want: "the backend http"},
		"JSON: a second backend":                 {files: map[string]string{"a.tf.json": `{"terraform": [{"backend": {"http": {}}}]}`}, want: "there are 2 backend blocks"},
		"JSON: a function of a provider":         {files: map[string]string{"a.tf.json": `{"locals": {"a": "${provider::x::y()}"}}`}, want: "a function of a provider"},
		"JSON: one that hides":                   {files: map[string]string{"a.tf.json": `{"locals": {"a": "${provider\u003a:x\u003a:y()}"}}`}, want: "a function of a provider"},
		"JSON that is none":                      {files: map[string]string{"a.tf.json": `{"resource": 1}`}, want: "neither an object nor a list"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"terrier_override.tf": httpBackend}
			for f, content := range c.files {
				files[f] = content
			}
			backend, err := SelfContained(dirOf(files))
			switch {
			case c.want == "" && (err != nil || backend != "terrier_override.tf"):
				t.Errorf("SelfContained() = %q, %v, want the file of the backend", backend, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("SelfContained() = %q, %v, want an error about %q", backend, err, c.want)
			}
		})
	}
	if backend, err := SelfContained(dirOf(map[string]string{"main.tf": builtInOnly})); err == nil {
		t.Errorf("SelfContained() without a backend = %q, want an error", backend)
	}
	if _, err := SelfContained(fstest.MapFS{"main.tf": {Mode: fs.ModeNamedPipe | 0o666}}); err == nil {
		t.Error("SelfContained() of what is no file gives no error")
	}
}

func TestBareHTTP(t *testing.T) {
	const good = `{"version": 3, "terraform_version": "1.12.2", "backend": {"type": "http", "config": {"address": null, "lock_address": null}, "hash": 2984870146}}`
	kept, err := BareHTTP([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	again, err := BareHTTP(kept)
	if err != nil || string(again) != string(kept) {
		t.Errorf("BareHTTP() of its own result = %s, %v, want %s", again, err, kept)
	}
	for name, change := range map[string][2]string{
		"another backend":           {`"http"`, `"s3"`},
		"an address":                {`"address": null`, `"address": "http://elsewhere"`},
		"one of the lock":           {`"lock_address": null`, `"lock_address": "http://elsewhere"`},
		"one after none":            {`"lock_address": null`, `"address": "http://elsewhere"`},
		"a setting of another kind": {`"address": null`, `"headers": {}`},
		"a name that is none":       {`"lock_address"`, `"../x"`},
		"no settings known":         {`"config": {"address": null, "lock_address": null}`, `"config": {}`},
		"another version":           {`"version": 3`, `"version": 4`},
		"an old one, with a state":  {`"version": 3,`, `"version": 3, "serial": 1, "lineage": "x", "modules": [],`},
		"a backend after it":        {`2984870146}}`, `2984870146}}{"backend": {"type": "s3"}}`},
		"another hash":              {`2984870146`, `"x"`},
		"no end":                    {`}}`, `}`},
		"none":                      {good, `{"version": 3}`},
		"a long text":               {`1.12.2`, strings.Repeat("1", 65)},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if got, err := BareHTTP([]byte(text)); text == good || err == nil {
			t.Errorf("%s: BareHTTP(%s) = %s, want an error", name, text, got)
		}
	}
	// Of two of a name an engine takes the last, and so is what is kept.
	twice := strings.Replace(good, `"config"`, `"config": {"address": "http://elsewhere"}, "config"`, 1)
	if got, err := BareHTTP([]byte(twice)); err == nil && strings.Contains(string(got), "elsewhere") {
		t.Errorf("BareHTTP() = %s, which has an address", got)
	}
}

func TestInitRequired(t *testing.T) {
	for name, c := range map[string]struct {
		d             plan.Diagnostic
		init, backend bool
	}{
		"of tofu":             {plan.Diagnostic{Severity: "error", Summary: `Backend initialization required, please run "tofu init"`}, true, true},
		"another backend":     {plan.Diagnostic{Severity: "error", Summary: `Backend initialization required: please run "tofu init"`}, true, true},
		"of terraform":        {plan.Diagnostic{Severity: "error", Summary: `Backend initialization required, please run "terraform init"`}, true, true},
		"what cannot be read": {plan.Diagnostic{Severity: "error", Summary: "Failed to decode current backend config", Detail: `Run "tofu init -reconfigure" to`}, true, true},
		"a module":            {plan.Diagnostic{Severity: "error", Summary: "Module not installed", Detail: `This module is not yet installed. Run "tofu init" to`}, true, false},
		"a provider":          {plan.Diagnostic{Severity: "error", Summary: "Inconsistent dependency lock file", Detail: "run:\n  tofu init"}, true, false},
		"a text of a module":  {plan.Diagnostic{Severity: "error", Summary: "Resource precondition failed", Detail: "Backend initialization required"}, false, false},
		"a warning":           {plan.Diagnostic{Severity: "warning", Summary: `Backend initialization required, please run "tofu init"`}, false, false},
		"anything else":       {plan.Diagnostic{Severity: "error", Summary: "Invalid reference"}, false, false},
	} {
		ds := []plan.Diagnostic{{Severity: "warning", Summary: "x"}, c.d}
		if got, about := InitRequired(ds), BackendUnknown(ds); got != c.init || about != c.backend {
			t.Errorf("%s: InitRequired() = %v, BackendUnknown() = %v, want %v, %v", name, got, about, c.init, c.backend)
		}
	}
}

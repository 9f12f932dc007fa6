package module

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestBackendFile(t *testing.T) {
	config := "/kube/config"
	for name, tt := range map[string]struct {
		backend Backend
		want    string
	}{
		"managed": {Managed{}, "terraform {\n  backend \"http\" {\n  }\n}\n"},
		"local":   {Local{}, "terraform {\n  backend \"local\" {\n  }\n}\n"},
		"kubernetes": {Kubernetes{SecretSuffix: "app", InClusterConfig: true, Namespace: "team"}, `terraform {
  backend "kubernetes" {
    secret_suffix     = "app"
    in_cluster_config = true
    namespace         = "team"
  }
}
`},
		"kubernetes with everything": {Kubernetes{SecretSuffix: "a", ConfigPath: &config, Namespace: "n", Labels: map[string]string{"b/x": "${1}", "a": "%{2}"}}, `terraform {
  backend "kubernetes" {
    secret_suffix     = "a"
    in_cluster_config = false
    config_path       = "/kube/config"
    namespace         = "n"
    labels = {
      a     = "%%{2}"
      "b/x" = "$${1}"
    }
  }
}
`},
		"cloud": {Cloud{Organization: "acme", Tags: []string{"a"}, Hostname: "h"}, `terraform {
  cloud {
    organization = "acme"
    hostname     = "h"
    workspaces {
      tags = ["a"]
    }
  }
}
`},
		"custom": {Custom{"backend \"s3\" {\n  key = \"k\"\n}\n# end"}, "terraform {\nbackend \"s3\" {\n  key = \"k\"\n}\n# end\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := BackendFile(tt.backend)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(f.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if f.Path != BackendPath {
				t.Errorf("path = %q, want %q", f.Path, BackendPath)
			}
		})
	}
	if f, err := BackendFile(Unset{}); err != nil || f.Path != "" {
		t.Errorf("BackendFile(Unset) = %q, %v; want no file", f.Path, err)
	}
}

func TestCustomConfiguration(t *testing.T) {
	for name, tt := range map[string]struct {
		hcl  string
		want string // in the message; empty accepts it
	}{
		"a backend":                 {`backend "gcs" {}`, ""},
		"with what goes with it":    {"required_version = \">= 1.5\"\nbackend \"gcs\" {}\nencryption {\n}", ""},
		"nothing":                   {``, "0 backend blocks"},
		"two":                       {"backend \"a\" {}\nbackend \"b\" {}", "2 backend blocks"},
		"a backend without type":    {"\nbackend {}", "line 2: a backend block needs one name"},
		"a cloud block":             {"cloud {\n}", "spec.cloud"},
		"another block":             {"backend \"a\" {}\nprovider_meta \"x\" {}", `line 2: a block of type "provider_meta"`},
		"an argument":               {"x = 1\nbackend \"a\" {}", `line 1: the argument "x"`},
		"a closing brace":           {"backend \"a\" {}\n}\nresource \"null_resource\" \"x\" {", customField + ":2: "},
		"an open comment":           {"backend \"a\" {}\n/*", customField + ":2: "},
		"an open heredoc":           {"backend \"a\" {\n x = <<EOT\n}", customField},
		"a brace inside a heredoc":  {"backend \"a\" {\n x = <<EOT\n}}}\nEOT\n}", ""},
		"a comment at the very end": {"backend \"a\" {} // }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := BackendFile(Custom{tt.hcl})
			if tt.want == "" {
				if err != nil {
					t.Errorf("BackendFile() error = %v, want none", err)
				}
				return
			}
			if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), tt.want) || !strings.Contains(fmt.Sprint(err), customField) {
				t.Errorf("BackendFile() error = %v, want Invalid with the field and %q", err, tt.want)
			}
		})
	}
}

// Whatever a user writes into the fields of a backend, the file holds one
// backend block and the field is what they wrote.
func TestFieldsStayValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`"`, "\n}", "${file(\"/etc/shadow\")}", "%{if true}", "<<EOT\n", `\`, "$${", "%%{", "\u2028"}))
		text := strings.ToValidUTF8(strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "pieces"), ""), "")
		text = strings.NewReplacer("\x00", "", "\ufeff", "").Replace(text)
		f, err := BackendFile(Kubernetes{SecretSuffix: text, Namespace: text, Labels: map[string]string{text: text}})
		if err != nil {
			t.Fatal(err)
		}
		block := onlyBackend(t, f.Content)
		attributes, diags := block.Body.JustAttributes()
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		want := cty.StringVal(text).AsString() // normalized, as HCL does with every string
		for _, name := range []string{"secret_suffix", "namespace"} {
			v, diags := attributes[name].Expr.Value(nil)
			if diags.HasErrors() || v.AsString() != want {
				t.Fatalf("%s reads back as %#v (%v), want %q", name, v, diags, want)
			}
		}
		labels, diags := attributes["labels"].Expr.Value(nil)
		if diags.HasErrors() || labels.AsValueMap()[want].AsString() != want {
			t.Fatalf("labels read back as %#v (%v), want %q in them", labels, diags, want)
		}
	})
}

type fataler interface {
	Fatalf(string, ...any)
}

func onlyBackend(t fataler, content []byte) *hclsyntax.Block {
	f, diags := hclsyntax.ParseConfig(content, "x", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatalf("%s\n%s", diags, content)
	}
	body := f.Body.(*hclsyntax.Body)
	if len(body.Blocks) != 1 || len(body.Attributes) != 0 || len(body.Blocks[0].Body.Blocks) != 1 {
		t.Fatalf("the file holds more than one backend:\n%s", content)
	}
	return body.Blocks[0].Body.Blocks[0]
}

func FuzzCustomConfiguration(f *testing.F) {
	f.Add(`backend "s3" {}`)
	f.Add("backend \"s3\" {\n  x = <<-EOT\n  }\n  EOT\n}")
	f.Add("backend \"s3\" {}\n}\nresource \"a\" \"b\" {")
	f.Fuzz(func(t *testing.T, hcl string) {
		file, err := BackendFile(Custom{hcl})
		if err != nil {
			return
		}
		r, err := Inspect(tree(map[string]string{BackendPath: string(file.Content)}), "", "tofu")
		if err != nil {
			t.Fatalf("an accepted configuration cannot be read: %v\n%s", err, file.Content)
		}
		if len(r.Backends) != 1 || r.Backends[0].Kind != "backend" || len(r.Variables) != 0 {
			t.Errorf("an accepted configuration holds more than a backend:\n%s", file.Content)
		}
	})
}

func TestAByteOrderMarkIsRefused(t *testing.T) {
	_, err := BackendFile(Kubernetes{Labels: map[string]string{"a\ufeffb": "x"}})
	if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), "spec.backendConfig") {
		t.Errorf("BackendFile() = %v, want Invalid with the field", err)
	}
}

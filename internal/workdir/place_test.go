package workdir

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestCheckPlace(t *testing.T) {
	for _, p := range []string{
		"", ".", "..", "../x", "/x", "a/../b", "a/", "a\nb", `a\b`,
		"generated.auto.tfvars.json", "backend_override.tf", "Backend_Override.tf", "x_override.tf.json", "override.tofu", "terrier_repair.tf", "main.tf.tpl",
		"terrier.tfrc", "terrier.tfbackend", "terrier.pem", ".terrier.tfrc", ".terraform", ".terraform/environment", ".TERRAFORM/x", ".terraform.lock.hcl",
		"terraform.tfstate", "terraform.tfstate.backup", "terraform.tfstate.d/x/terraform.tfstate", "errored.tfstate",
	} {
		if got := fault.Of(CheckPlace(p, false)); got != fault.Invalid {
			t.Errorf("%q in the working directory: %q, want Invalid", p, got)
		}
	}
	for _, p := range []string{"", "..", "../x", ".terraformrc", ".tofurc", ".terraform.d/plugins", ".terraform.d/plugins/registry/x"} {
		if got := fault.Of(CheckPlace(p, true)); got != fault.Invalid {
			t.Errorf("%q at home: %q, want Invalid", p, got)
		}
	}
	for _, p := range []string{"provider.tf", "keys/id_rsa", "a.auto.tfvars", "modules/x/override.tf", ".netrc", "..a"} {
		if err := CheckPlace(p, false); err != nil {
			t.Errorf("%q in the working directory: %v", p, err)
		}
	}
	for _, p := range []string{".ssh/id_rsa", ".kube/config", ".aws/credentials", ".terraform.d/credentials.tfrc.json", "generated.auto.tfvars.json"} {
		if err := CheckPlace(p, true); err != nil {
			t.Errorf("%q at home: %v", p, err)
		}
	}
}

func TestIsHost(t *testing.T) {
	for s, want := range map[string]bool{
		"app.terraform.io": true, "localhost:8443": true, "h": true, "127.0.0.1:80": true,
		"": false, "a b": false, "a\"": false, "https://a": false, "a/b": false, "-a": false, "A": false, "a..b": false,
	} {
		if got := IsHost(s); got != want {
			t.Errorf("IsHost(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	big := File{Content: make([]byte, placedBytes/2)}
	if err := CheckSizes([]File{big, big}); err != nil {
		t.Error(err)
	}
	if got := fault.Of(CheckSizes([]File{big, big, {Content: []byte("x")}})); got != fault.Invalid {
		t.Errorf("one byte more: %q, want Invalid", got)
	}
}

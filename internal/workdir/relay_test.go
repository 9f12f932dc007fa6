package workdir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelayComplete(t *testing.T) {
	const random, null = "registry.opentofu.org/hashicorp/random", "registry.opentofu.org/hashicorp/null"
	const credentials = `
credentials "127.0.0.1:4711" {
  token = "s3"
}
`
	const host = `
credentials "registry.example.com" {
  token = "s3"
}

host "registry.example.com" {
  services = {
    "modules.v1" = "https://127.0.0.1:4711/v1/modules/"
    "providers.v1" = "https://127.0.0.1:4711/v1/providers/"
  }
}
`
	mirror := Mirror{Dir: "/mirror", Providers: []string{random, null}}
	all := Relay{Address: "127.0.0.1:4711", Secret: "s3", Hosts: []string{"registry.example.com"}, Mirror: true}
	modules := all
	modules.Mirror = false
	const ownInstall = "disable_checkpoint = true\n\nprovider_installation {\n  direct {\n  }\n}\n"
	for name, tt := range map[string]struct {
		config string
		relay  Relay
		mirror Mirror
		want   string
	}{
		"without a directory of providers": {string(CLIConfig(Mirror{}).Content), all, Mirror{Dir: "/mirror"}, `disable_checkpoint = true

provider_installation {
  direct {
    include = ["registry.example.com/*/*"]
    exclude = []
  }
  network_mirror {
    url     = "https://127.0.0.1:4711/v1/mirror/"
    exclude = ["registry.example.com/*/*"]
  }
}
` + credentials + host},
		"what the directory has comes from there": {string(CLIConfig(mirror).Content), all, mirror, `disable_checkpoint = true

provider_installation {
  filesystem_mirror {
    path    = "/mirror"
    include = ["registry.opentofu.org/hashicorp/null", "registry.opentofu.org/hashicorp/random"]
  }
  direct {
    include = ["registry.example.com/*/*"]
    exclude = ["registry.opentofu.org/hashicorp/null", "registry.opentofu.org/hashicorp/random"]
  }
  network_mirror {
    url     = "https://127.0.0.1:4711/v1/mirror/"
    exclude = ["registry.opentofu.org/hashicorp/null", "registry.opentofu.org/hashicorp/random", "registry.example.com/*/*"]
  }
}
` + credentials + host},
		"only the directory, and one provider has moved": {
			string(CLIConfig(Mirror{Dir: "/mirror", Only: true}).Content), all, Mirror{Dir: "/mirror", Providers: []string{null}}, `disable_checkpoint = true

provider_installation {
  filesystem_mirror {
    path    = "/mirror"
    include = ["registry.opentofu.org/hashicorp/null"]
  }
  direct {
    include = ["registry.example.com/*/*"]
    exclude = ["registry.opentofu.org/hashicorp/null"]
  }
  network_mirror {
    url     = "https://127.0.0.1:4711/v1/mirror/"
    exclude = ["registry.opentofu.org/hashicorp/null", "registry.example.com/*/*"]
  }
}
` + credentials + host},
		"only mirrors, and some providers past them": {
			string(CLIConfig(Mirror{Dir: "/mirror", Only: true}).Content),
			Relay{Address: all.Address, Secret: all.Secret, Mirror: true, Direct: []string{"private.example.com:8443/*/*"}}, Mirror{Dir: "/mirror", Providers: []string{null}},
			`disable_checkpoint = true

provider_installation {
  filesystem_mirror {
    path    = "/mirror"
    include = ["registry.opentofu.org/hashicorp/null"]
  }
  direct {
    include = ["private.example.com:8443/*/*"]
    exclude = ["registry.opentofu.org/hashicorp/null"]
  }
  network_mirror {
    url     = "https://127.0.0.1:4711/v1/mirror/"
    exclude = ["registry.opentofu.org/hashicorp/null", "private.example.com:8443/*/*"]
  }
}
` + credentials},
		"modules alone where only the directory counts": {string(CLIConfig(Mirror{Dir: "/mirror", Only: true}).Content), modules, mirror, string(CLIConfig(Mirror{Dir: "/mirror", Only: true}).Content) + host},
		"modules alone change no place of providers":    {string(CLIConfig(mirror).Content), modules, mirror, string(CLIConfig(mirror).Content) + host},
		"modules alone, and one provider has moved": {string(CLIConfig(mirror).Content), modules, Mirror{Dir: "/mirror", Providers: []string{null}},
			string(CLIConfig(Mirror{Dir: "/mirror", Providers: []string{null}}).Content) + host},
		"a stack that says where providers come from": {ownInstall, all, mirror, ownInstall + credentials + host},
		"the hosts that a stack names are asked, and a provider that the mirror lacks": {
			"disable_checkpoint = true\n" + strings.ReplaceAll(credentials, "127.0.0.1:4711", "private.example.com"),
			Relay{Address: all.Address, Secret: all.Secret, Mirror: true, Direct: []string{random}}, Mirror{Dir: "/mirror"},
			"disable_checkpoint = true\n" + strings.ReplaceAll(credentials, "127.0.0.1:4711", "private.example.com") + `
provider_installation {
  direct {
    include = ["private.example.com/*/*", "registry.opentofu.org/hashicorp/random"]
    exclude = []
  }
  network_mirror {
    url     = "https://127.0.0.1:4711/v1/mirror/"
    exclude = ["private.example.com/*/*", "registry.opentofu.org/hashicorp/random"]
  }
}
` + credentials},
		"a stack with credentials of the host": {
			"disable_checkpoint = true\n" + strings.ReplaceAll(credentials, "127.0.0.1:4711", "registry.example.com"), modules, mirror,
			"disable_checkpoint = true\n" + strings.ReplaceAll(credentials, "127.0.0.1:4711", "registry.example.com")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, string(tt.relay.Complete([]byte(tt.config), tt.mirror))); diff != "" {
				t.Errorf("Complete() (-want +got):\n%s", diff)
			}
		})
	}
}

package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// RG-19: tokens of namespaces are created, listed and revoked over a kubeconfig and over
// HTTP. Standard output of create is the token and nothing else.
func TestRegistryTokens(t *testing.T) {
	p := newPlatform(t)
	p.Environ = p.overKubeconfig()
	made := p.run(t, "registry", "tokens", "create", "-n", p.cluster.Namespace, "--write", "--name", "ci", "--life", "90d")
	if made.code != 0 || !regexp.MustCompile(`^terrier-registry\.[0-9a-f]{16}\.[A-Za-z0-9_-]{43}\n$`).MatchString(made.out) || !strings.Contains(made.err, "read and publish modules and providers of the namespace "+p.cluster.Namespace) {
		t.Fatalf("create ends with %d: %s%s", made.code, made.out, made.err)
	}
	parts := strings.Split(strings.TrimSpace(made.out), ".")
	id, secret := parts[1], parts[2]
	p.dialogue(t, []line{
		{"registry tokens list", 0, []string{id, "ci", "namespace " + p.cluster.Namespace, "read and publish", "active"}, secret},
		{"registry tokens create", 2, []string{"--name is missing"}, ""},
		{"registry tokens create --name ci", 2, []string{"--namespace"}, ""},
		{"registry tokens create --name ci --life soon", 2, []string{`"soon" is no duration`}, ""},
		{"registry tokens create --name ci --life 400d -n " + p.cluster.Namespace, 2, []string{"at most 366 days"}, ""},
		{"registry tokens create --name ci --life -1h -n " + p.cluster.Namespace, 2, []string{"at least a second"}, ""},
		{"registry tokens revoke 0123456789abcdef", 4, []string{"there is no token with the ID"}, ""},
	})
	p.Environ = p.overHTTP()
	p.dialogue(t, []line{
		{"registry tokens list -o json", 0, []string{`"id": "` + id + `"`, `"write": true`}, secret},
		{"registry tokens revoke " + id, 0, []string{"The token ci is revoked."}, ""},
		{"registry tokens list", 0, []string{id, "revoked by "}, secret},
		{"registry tokens create --name reader -o json -n " + p.cluster.Namespace, 0, []string{`"secret": "terrier-registry.`}, ""},
	})
}

// The variable of a host cannot have a port.
func TestTokenUse(t *testing.T) {
	for host, want := range map[string]string{
		"my-registry.example.com":   "export TF_TOKEN_my__registry_example_com=TOKEN",
		"registry.example.com:443":  "export TF_TOKEN_registry_example_com=TOKEN",
		"registry.example.com:8443": `write it into the file that TF_CLI_CONFIG_FILE names: credentials "registry.example.com:8443" { token = "TOKEN" }`,
	} {
		if got := tokenUse(host); got != want {
			t.Errorf("tokenUse(%s) = %s, want %s", host, got, want)
		}
	}
}

// In a program that runs a registry alone, the tokens are below that command.
func TestRegistryTokensBelowTheRegistry(t *testing.T) {
	ran := false
	p := newProgram(env(t))
	root := p.root([]*cobra.Command{{Use: "registry", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { ran = true; return nil }}})
	found, _, err := root.Find([]string{"registry", "tokens", "list"})
	if err != nil || found.CommandPath() != "terrier registry tokens list" {
		t.Errorf("it is %v, %v", found, err)
	}
	root.SetArgs([]string{"registry"})
	if err := root.ExecuteContext(t.Context()); err != nil || !ran {
		t.Errorf("the registry ran: %v, %v", ran, err)
	}
}

package controller

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		platform string
		allow    bool
		asked    string
		want     string
		kind     fault.Kind
	}{
		"the platform's choice":           {"host", false, "", "host", fault.None},
		"a stack may have less":           {"host", false, "none", "none", fault.None},
		"the same is no question":         {"host", false, "host", "host", fault.None},
		"more only if the platform lets":  {"none", false, "host", "", fault.Denied},
		"which it may":                    {"none", true, "host", "host", fault.None},
		"something else is not a network": {"host", true, "bridge", "", fault.Invalid},
	} {
		c := takeApart(&Stacks{Config: Config{Network: tt.platform, HostNetwork: tt.allow}})
		got, err := c.network(stack.Configuration{Network: tt.asked})
		if got != tt.want || fault.Of(err) != tt.kind {
			t.Errorf("%s: network() = %q, %v, want %q, %q", name, got, err, tt.want, tt.kind)
		}
	}
}

func TestSpeakable(t *testing.T) {
	for name, tt := range map[string]struct {
		p    stack.Configuration
		want string
	}{
		"plain":            {stack.Configuration{Targets: []string{"module.a"}, VarFiles: []string{"a.tfvars"}, Parallelism: 10}, ""},
		"an option":        {stack.Configuration{Targets: []string{"module.a", "-destroy"}}, "spec.targets[1]"},
		"a way out":        {stack.Configuration{VarFiles: []string{"../x"}}, "spec.tfVarsFiles[0]"},
		"too much at once": {stack.Configuration{Parallelism: 1 << 30}, "spec.parallelism"},
	} {
		err := checkOptions(tt.p)
		if tt.want == "" && err != nil || tt.want != "" && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q to be named", name, err, tt.want)
		}
	}
}

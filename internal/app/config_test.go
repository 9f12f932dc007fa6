package app

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// A list in the environment can hold what has a colon in it.
func TestListsInTheEnvironment(t *testing.T) {
	var c Config
	set := map[string]string{"TERRIER_ALLOW_HOSTS": "127.0.0.1:8080,[::1]:8443"}
	if err := bind(pflag.NewFlagSet("", pflag.ContinueOnError), &c, func(name string) string { return set[name] }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"127.0.0.1:8080", "[::1]:8443"}; !slices.Equal(c.AllowHosts, want) {
		t.Errorf("the hosts are %q, want %q", c.AllowHosts, want)
	}
	if want := []string{"profile", "email"}; !slices.Equal(c.OIDCScopes, want) {
		t.Errorf("the scopes are %q, want %q", c.OIDCScopes, want)
	}
}

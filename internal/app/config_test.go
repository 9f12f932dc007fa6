package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/terrier-iac/terrier/internal/app/flags"
)

// A list in the environment can hold what has a colon in it.
func TestListsInTheEnvironment(t *testing.T) {
	var c Config
	set := map[string]string{"TERRIER_ALLOW_HOSTS": "127.0.0.1:8080,[::1]:8443"}
	if err := flags.Bind(pflag.NewFlagSet("", pflag.ContinueOnError), &c, func(name string) string { return set[name] }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"127.0.0.1:8080", "[::1]:8443"}; !slices.Equal(c.AllowHosts, want) {
		t.Errorf("the hosts are %q, want %q", c.AllowHosts, want)
	}
	if want := []string{"profile", "email"}; !slices.Equal(c.OIDCScopes, want) {
		t.Errorf("the scopes are %q, want %q", c.OIDCScopes, want)
	}
}

// The variables of the former controllers of alustan.io count if there is none of our own.
func TestIntervalOfScriptsInTheEnvironment(t *testing.T) {
	for name, tt := range map[string]struct {
		set  map[string]string
		want time.Duration
	}{
		"none":                                {nil, 6 * time.Hour},
		"that of the first controllers":       {map[string]string{"SYNC_INTERVAL": "90s"}, 90 * time.Second},
		"that of the last controller":         {map[string]string{"INFRA_SYNC_INTERVAL": "2h"}, 2 * time.Hour},
		"the variable of Terrier comes first": {map[string]string{"SYNC_INTERVAL": "90s", "TERRIER_SYNC_INTERVAL": "0"}, 0},
	} {
		var c Config
		err := flags.Bind(pflag.NewFlagSet("", pflag.ContinueOnError), &c, func(name string) string { return tt.set[name] })
		if err != nil || c.SyncInterval != tt.want {
			t.Errorf("%s: the interval is %s (%v), want %s", name, c.SyncInterval, err, tt.want)
		}
	}
	var c Config
	err := flags.Bind(pflag.NewFlagSet("", pflag.ContinueOnError), &c, func(name string) string { return map[string]string{"SYNC_INTERVAL": "soon"}[name] })
	if err == nil || !strings.Contains(err.Error(), "--sync-interval, from the environment variable SYNC_INTERVAL") {
		t.Errorf("error = %v, want one that names the flag and the variable", err)
	}
}

package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/fault"
)

func podsConfig(t *testing.T, args ...string) PodsConfig {
	t.Helper()
	var c PodsConfig
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	if err := flags.Bind(set, &c, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if err := set.Parse(append([]string{"--runs-as", "pods", "--run-image", "i"}, args...)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPodsConfigIsChecked(t *testing.T) {
	const beyond, loopback = "0.0.0.0:8443", "127.0.0.1:0"
	hosts := []string{"terrier.terrier-system.svc"}
	lock := filepath.Join(t.TempDir(), "lock.hcl")
	if err := os.WriteFile(lock, []byte("# It names none.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args    []string
		address string
		hosts   []string
		want    string
	}{
		"as it is by default":    {nil, beyond, hosts, ""},
		"on loopback":            {nil, loopback, nil, ""},
		"processes need nothing": {[]string{"--runs-as", "processes", "--run-image", ""}, beyond, nil, ""},
		"other than both":        {[]string{"--runs-as", "jobs"}, beyond, hosts, "--runs-as"},
		"no image":               {[]string{"--run-image", ""}, beyond, hosts, "--run-image"},
		"no name to dial":        {nil, beyond, nil, "--http-host"},
		"no pull policy":         {[]string{"--run-image-pull-policy", "Sometimes"}, beyond, hosts, "--run-image-pull-policy"},
		"a secret that is none":  {[]string{"--run-image-pull-secret", "a/b"}, beyond, hosts, "--run-image-pull-secret"},
		"no account":             {[]string{"--run-service-account", ""}, beyond, hosts, "--run-service-account"},
		"no time to start":       {[]string{"--run-start-timeout", "0s"}, beyond, hosts, "--run-start-timeout"},
		"resources of neither":   {[]string{"--run-resources", "cpu=1"}, beyond, hosts, "--run-resources"},
		"resources without size": {[]string{"--run-resources", "limits.cpu=much"}, beyond, hosts, "--run-resources"},
		"too little memory":      {[]string{"--run-resources", "limits.memory=128Mi"}, beyond, hosts, "160Mi or more"},
		"a cache without hashes": {[]string{"--run-provider-cache", `{"hostPath": {"path": "/x"}}`}, beyond, hosts, "--run-provider-lock"},
		"a cache that is none":   {[]string{"--run-provider-cache", `{"hostPaht": {}}`, "--run-provider-lock", lock}, beyond, hosts, "--run-provider-cache"},
		"a cache of two kinds":   {[]string{"--run-provider-cache", `{"hostPath": {"path": "/x"}, "emptyDir": {}}`, "--run-provider-lock", lock}, beyond, hosts, "2 kinds"},
		"a cache with hashes":    {[]string{"--run-provider-cache", `{"hostPath": {"path": "/x"}}`, "--run-provider-lock", lock}, beyond, hosts, ""},
		"hashes that are none":   {[]string{"--run-provider-cache", `{"hostPath": {"path": "/x"}}`, "--run-provider-lock", "pods_test.go"}, beyond, hosts, "--run-provider-lock"},
		"no check in a pod":      {[]string{"--checks-per-pod", "0"}, beyond, hosts, "--checks-per-pod: 0 is not between 1 and 100"},
		"several checks in one":  {[]string{"--checks-per-pod", "8"}, beyond, hosts, ""},
		"an unknown engine":      {[]string{"--run-engine-version", "pulumi 3"}, beyond, hosts, "--run-engine-version"},
		"no engine of its own":   {[]string{"--run-engine-version", "old=tofu 1.11.2"}, beyond, hosts, "--run-engine-version"},
	} {
		t.Run(name, func(t *testing.T) {
			err := podsConfig(t, tt.args...).check(tt.address, tt.hosts)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check() = %v, want %q", err, tt.want)
			}
		})
	}
}

// Checks share pods only where the runs in them are kept apart.
func TestChecksSharePodsFromLevelKernelOn(t *testing.T) {
	for level, want := range map[int]string{1: "needs --min-isolation 2 or 3", 2: "", 3: ""} {
		err := podsConfig(t, "--checks-per-pod", "8").checkIsolation(level)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkIsolation(%d) = %v, want %q", level, err, want)
		}
		if err := podsConfig(t).checkIsolation(level); err != nil {
			t.Errorf("checkIsolation(%d) without sharing = %v", level, err)
		}
	}
}

// The default of --run-engine-version is what the image of a release is built with.
func TestEngineOfPodsIsTheOneOfTheRelease(t *testing.T) {
	mod, err := os.ReadFile("../../tools/tofu/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	built := regexp.MustCompile(`github.com/opentofu/opentofu v(\S+)`).FindSubmatch(mod)
	if built == nil {
		t.Fatal("tools/tofu/go.mod names no version")
	}
	find, err := podsConfig(t).find()
	if err != nil {
		t.Fatal(err)
	}
	if e, err := find(t.Context(), ""); err != nil || e.String() != "tofu "+string(built[1]) || e.Path != "" {
		t.Errorf("the engine is %s at %q, %v; want tofu %s, and no path", e, e.Path, err, built[1])
	}
}

func TestEnginesOfPodsAreFoundByName(t *testing.T) {
	find, err := podsConfig(t, "--run-engine-version", "tofu 1.12.6", "--run-engine-version", "old=terraform v1.5.7").find()
	if err != nil {
		t.Fatal(err)
	}
	if e, err := find(t.Context(), "old"); err != nil || e.String() != "terraform 1.5.7" {
		t.Errorf("old is %s, %v; want terraform 1.5.7", e, err)
	}
	if _, err := find(t.Context(), "new"); fault.Of(err) != fault.Missing {
		t.Errorf("an unknown engine: %v, want Missing", err)
	}
}

package workdir

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestEnviron(t *testing.T) {
	for name, tt := range map[string]struct {
		settings []Setting
		want     map[string]string
	}{
		"later ones win":                  {[]Setting{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}, map[string]string{"A": "2"}},
		"references are to what is above": {[]Setting{{Name: "A", Value: "1"}, {Name: "B", Value: "<$(A)$(C)>", Refers: true}, {Name: "C", Value: "3"}}, map[string]string{"A": "1", "B": "<1$(C)>", "C": "3"}},
		"to itself means before":          {[]Setting{{Name: "A", Value: "1"}, {Name: "A", Value: "$(A)2", Refers: true}}, map[string]string{"A": "12"}},
		"what is inserted is not read again": {[]Setting{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "2"}, {Name: "C", Value: "$(A)", Refers: true}},
			map[string]string{"A": "$(B)", "B": "2", "C": "$(B)"}},
		"a dollar is escaped by another": {[]Setting{{Name: "A", Value: "1"}, {Name: "B", Value: "$$(A) $$ $ $(A", Refers: true}}, map[string]string{"A": "1", "B": "$(A) $ $ $(A"}},
		"values from elsewhere are kept": {[]Setting{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)$$"}}, map[string]string{"A": "1", "B": "$(A)$$"}},
	} {
		got, err := Environ(tt.settings)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestEnvironRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		setting Setting
		kind    fault.Kind
		want    string
	}{
		"what controls the engine":        {Setting{Name: "LD_PRELOAD"}, fault.Denied, "LD_PRELOAD"},
		"a NUL":                           {Setting{Name: "A", Value: "x\x00"}, fault.Invalid, "A holds a NUL byte"},
		"what no program is started with": {Setting{Name: "A", Value: strings.Repeat("x", 128<<10)}, fault.Invalid, "A is too long"},
	} {
		_, err := Environ([]Setting{tt.setting})
		if fault.Of(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.want) || strings.Contains(fmt.Sprint(err), "xxx") {
			t.Errorf("%s: %.80v, want %s with %q and without the value", name, err, tt.kind, tt.want)
		}
	}
}

// References to a long value are not followed further than a variable may be long, and
// many variables are not taken that no program could be started with.
func TestEnvironIsBounded(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	many := []Setting{{Name: "A", Value: long}}
	for i := range 20 {
		many = append(many, Setting{Name: fmt.Sprintf("B%d", i), Value: "$(A)", Refers: true})
	}
	for name, tt := range map[string]struct {
		settings []Setting
		want     string
		bytes    uint64 // that may be allocated
	}{
		"many references": {[]Setting{{Name: "A", Value: long}, {Name: "B", Value: strings.Repeat("$(A)", 100_000), Refers: true}}, "B is too long", 2 << 20},
		"an unclosed one": {[]Setting{{Name: "A", Value: strings.Repeat("$(", 60<<10), Refers: true}}, "", 2 << 20},
		"many variables":  {many, "more than 1048576 bytes together", 8 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Environ(tt.settings)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		if (err == nil) != (tt.want == "") || err != nil && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %.200v, want Invalid with %q", name, err, tt.want)
		}
		if allocated > tt.bytes {
			t.Errorf("%s: %d bytes were allocated, want at most %d", name, allocated, tt.bytes)
		}
	}
}

// A renewed credential is the same plan; anything else is another one.
func TestLasting(t *testing.T) {
	secret := func(name, value string) []string { return Lasting([]Setting{{Name: name, Value: value, Secret: true}}) }
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ARM_CLIENT_SECRET", "GOOGLE_CREDENTIALS", "VAULT_TOKEN",
		"PGPASSWORD", "TFE_TOKEN", "CLOUDFLARE_API_KEY", "OS_PASSWORD", "DIGITALOCEAN_TOKEN", "AWS_CREDENTIAL_EXPIRATION",
	} {
		if !slices.Equal(secret(name, "one"), secret(name, "two")) {
			t.Errorf("a renewed %s is another plan", name)
		}
		if slices.Equal(Lasting([]Setting{{Name: name, Value: "one"}}), Lasting([]Setting{{Name: name, Value: "two"}})) {
			t.Errorf("another %s that is no secret is the same plan", name)
		}
	}
	for _, name := range []string{"AWS_REGION", "VAULT_ADDR", "ARM_SUBSCRIPTION_ID", "GOOGLE_PROJECT", "PGHOST", "TF_VAR_token", "TF_VAR_API_KEY", "KEY", "MONKEY"} {
		if slices.Equal(secret(name, "one"), secret(name, "two")) {
			t.Errorf("another %s is the same plan", name)
		}
	}
	if slices.Equal(secret("A_TOKEN", "x"), secret("B_TOKEN", "x")) || slices.Equal(secret("A_TOKEN", "x"), nil) {
		t.Error("the names of credentials are not part of a plan")
	}
}

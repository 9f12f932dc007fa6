package runner

import (
	"slices"
	"testing"
)

// The password of a proxy is hidden, with a scheme before it and without.
func TestPasswordsOfProxies(t *testing.T) {
	for value, want := range map[string][]string{
		"http://user:canary@proxy.example.com:3128":  {"canary", "user:canary"},
		"user:canary@proxy.example.com:3128":         {"canary", "user:canary"},
		"user:can%2Fary@proxy.example.com":           {"can/ary", "user:can%2Fary"},
		"//user:canary@proxy.example.com":            {"canary", "user:canary"},
		"user@proxy.example.com:3128":                nil,
		"http://proxy.example.com:3128":              nil,
		"proxy.example.com:3128":                     nil,
		"localhost,10.0.0.0/8,.example.com,[::1]:80": nil,
		"": nil,
	} {
		if got := (Platform{Env: map[string]string{"HTTPS_PROXY": value}}).secrets(); !slices.Equal(got, want) {
			t.Errorf("secrets() of %q = %q, want %q", value, got, want)
		}
	}
}

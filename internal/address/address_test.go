package address_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

func TestModules(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		text string
		want address.Module
		says string // of the error
	}{
		"a module":                       {text: "team-a/vpc/aws", want: address.Module{Namespace: "team-a", Name: "vpc", System: "aws"}},
		"case is kept":                   {text: "TeamA/My_VPC/aws", want: address.Module{Namespace: "TeamA", Name: "My_VPC", System: "aws"}},
		"the longest names":              {text: long + "/" + long + "/" + long, want: address.Module{Namespace: long, Name: long, System: long}},
		"one character":                  {text: "a/b/c", want: address.Module{Namespace: "a", Name: "b", System: "c"}},
		"a longer name":                  {text: "a/" + long + "a/c", says: "cannot be the name of a module"},
		"a dash at the end":              {text: "a-/b/c", says: `"a-" cannot be the namespace`},
		"a dot":                          {text: "a.b/b/c", says: "namespace"},
		"a system in upper case":         {text: "a/b/AWS", says: "target system"},
		"a system with a dash":           {text: "a/b/aws-x", says: "target system"},
		"two parts":                      {text: "a/b", says: "write namespace/name/system"},
		"a host before it":               {text: "registry.example.com/a/b/c", says: "write namespace/name/system"},
		"an empty part":                  {text: "a//c", says: "name of a module"},
		"a part that leads up":           {text: "../b/c", says: "namespace"},
		"a line break at the end":        {text: "a/b/c\n", says: "target system"},
		"letters of another alphabet":    {text: "ä/b/c", says: "namespace"},
		"an address with a subdirectory": {text: "a/b/c//sub", says: "write namespace/name/system"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := address.ParseModule(tt.text)
			check(t, got, tt.want, err, tt.says)
			if err == nil && got.String() != tt.text {
				t.Errorf("String() = %q, want %q", got, tt.text)
			}
		})
	}
}

func TestProviders(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want address.Provider
		says string
	}{
		"one of our own":              {text: "acme/cloud", want: address.Provider{Namespace: "acme", Type: "cloud"}},
		"one of another registry":     {text: "registry.opentofu.org/hashicorp/aws", want: address.Provider{Host: "registry.opentofu.org", Namespace: "hashicorp", Type: "aws"}},
		"upper case is lower case":    {text: "Registry.Example.COM/Acme/Cloud-Two", want: address.Provider{Host: "registry.example.com", Namespace: "acme", Type: "cloud-two"}},
		"a host of one label":         {text: "registry/acme/cloud", want: address.Provider{Host: "registry", Namespace: "acme", Type: "cloud"}},
		"a host with a port":          {text: "registry.example.com:8443/acme/cloud", says: "has a port, and clients cannot install"},
		"a host with an empty label":  {text: "registry..com/acme/cloud", says: "is no host name"},
		"an empty host":               {text: "/acme/cloud", says: "is no address of a provider"},
		"two dashes":                  {text: "acme/xn--cloud", says: "type of a provider"},
		"an underscore":               {text: "acme/my_cloud", says: "type of a provider"},
		"a dash at the beginning":     {text: "-acme/cloud", says: "namespace of a provider"},
		"the old namespace":           {text: "-/cloud", says: "namespace of a provider"},
		"the name of a repository":    {text: "acme/terraform-provider-cloud", says: "leave out the prefix"},
		"a type alone":                {text: "cloud", says: "is no address of a provider"},
		"a path that leads elsewhere": {text: "../acme/cloud", says: "is no host name"},
		"too long":                    {text: "acme/" + strings.Repeat("a", 65), says: "type of a provider"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := address.ParseProvider(tt.text)
			check(t, got, tt.want, err, tt.says)
			if err == nil && got.String() != strings.ToLower(tt.text) {
				t.Errorf("String() = %q, want %q", got, strings.ToLower(tt.text))
			}
		})
	}
}

func TestPlatforms(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want address.Platform
		says string
	}{
		"a platform":       {text: "linux_amd64", want: address.Platform{OS: "linux", Arch: "amd64"}},
		"no underscore":    {text: "linux", says: `"linux" is no platform: write OS_ARCH`},
		"two underscores":  {text: "linux_arm_v6", says: "write OS_ARCH"},
		"upper case":       {text: "Linux_amd64", says: "write OS_ARCH"},
		"an empty half":    {text: "_amd64", says: "write OS_ARCH"},
		"a slash":          {text: "linux_../x", says: "write OS_ARCH"},
		"nothing":          {text: "", says: "write OS_ARCH"},
		"an archive's end": {text: "linux_amd64.zip", says: "write OS_ARCH"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := address.ParsePlatform(tt.text)
			check(t, got, tt.want, err, tt.says)
			if err == nil && got.String() != tt.text {
				t.Errorf("String() = %q, want %q", got, tt.text)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		text, says string
	}{
		"a version":           {text: "1.2.3"},
		"a pre-release":       {text: "1.2.3-rc.1"},
		"a v":                 {text: "v1.2.3", says: `begins with v: write it as "1.2.3"`},
		"two numbers":         {text: "1.2", says: "is no version: write it as 1.2.3"},
		"build metadata":      {text: "1.2.3+build", says: "leave out +build"},
		"a leading zero":      {text: "1.02.3", says: "is no version"},
		"a path":              {text: "1.2.3/../4", says: "is no version"},
		"an underscore":       {text: "1.2.3-rc_1", says: "is no version"},
		"nothing":             {text: "", says: "is no version"},
		"a space":             {text: "1.2.3 ", says: "is no version"},
		"a very long version": {text: "1.2.3-" + strings.Repeat("a", 60), says: "longer than 64 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := address.ParseVersion(tt.text)
			want := address.Version(tt.text)
			if tt.says != "" {
				want = ""
			}
			check(t, got, want, err, tt.says)
		})
	}
}

func TestVersionsHaveAnOrder(t *testing.T) {
	want := []address.Version{"", "latest", "0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.0.1", "1.0.10", "1.10.0", "10.0.0"}
	got := slices.Clone(want)
	slices.Reverse(got)
	address.SortVersions(got)
	if !slices.Equal(got, want) {
		t.Errorf("SortVersions() = %v, want %v", got, want)
	}
	for i, v := range want[1:] {
		if v.Compare(want[i]) <= 0 || want[i].Compare(v) >= 0 || v.Compare(v) != 0 {
			t.Errorf("%q is not after %q", v, want[i])
		}
	}
	if !address.Version("1.0.0-rc.2").Prerelease() || address.Version("1.0.0").Prerelease() {
		t.Error("1.0.0-rc.2 is a pre-release, and 1.0.0 is none")
	}
}

// Names that were parsed are parts of paths and keys.
func TestNamesAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[-_a-zA-Z0-9./\\+~ é\x00]{1,12}(/[-_a-zA-Z0-9./+ ]{1,12}){0,2}`).Draw(t, "text")
		safe := func(what string) {
			for part := range strings.SplitSeq(what, "/") {
				if part == "" || strings.Trim(part[:1], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || strings.Trim(part, "-_.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
					t.Fatalf("%q was parsed to %q", text, what)
				}
			}
		}
		if m, err := address.ParseModule(text); err == nil {
			safe(m.String())
		}
		if p, err := address.ParseProvider(text); err == nil {
			safe(p.String())
		}
		if v, err := address.ParseVersion(text); err == nil {
			safe(string(v))
		}
	})
}

func check[T comparable](t *testing.T, got, want T, err error, says string) {
	t.Helper()
	if says == "" {
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		return
	}
	if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), says) {
		t.Errorf("got %+v and the error %v, want one that says %q", got, err, says)
	}
	var none T
	if got != none {
		t.Errorf("got %+v with an error", got)
	}
}

func TestRanges(t *testing.T) {
	for text, want := range map[string]struct{ in, out string }{
		"1.2.3":             {"1.2.3", "1.2.4 1.2.3-rc1 v1.2.3"},
		">= 1.2, < 2.0":     {"1.2.0 1.99.0", "2.0.0 1.1.9"},
		"~> 1.2":            {"1.2.0 1.9.9", "2.0.0 1.1.0"},
		"~> 0.2":            {"0.2.0 0.9.0", "1.0.0 0.1.0"},
		"~> 1.2.3":          {"1.2.3 1.2.9", "1.3.0 1.2.2"},
		"~>0.2.3, != 0.2.5": {"0.2.3", "0.2.5 0.3.0"},
		"~> 2":              {"2.0.0 3.1.0", "1.9.0"},
		"!= 1.0.0":          {"1.0.1", "1.0.0 main"},
	} {
		r, err := address.ParseRange(text)
		if err != nil {
			t.Errorf("ParseRange(%q): %v", text, err)
			continue
		}
		for _, v := range strings.Fields(want.in) {
			if !r.Has(v) {
				t.Errorf("%q does not have %s", text, v)
			}
		}
		for _, v := range strings.Fields(want.out) {
			if r.Has(v) {
				t.Errorf("%q has %s", text, v)
			}
		}
	}
	for _, text := range []string{"", ">= y", "~> x.y", "~> ", "1.2.3.4.5", "main"} {
		if _, err := address.ParseRange(text); fault.Of(err) != fault.Invalid {
			t.Errorf("ParseRange(%q) = %v, want Invalid", text, err)
		}
	}
}

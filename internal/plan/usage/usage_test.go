package usage_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestSources(t *testing.T) {
	for name, tt := range map[string]struct {
		source, version string
		want            usage.Origin
		key             string
	}{
		"of a registry": {"registry.opentofu.org/net/vpc/aws", "1.2.3",
			usage.Origin{Location: usage.Location{Kind: usage.Registry, Address: "registry.opentofu.org/net/vpc/aws"}, Version: "1.2.3"}, "registry:registry.opentofu.org/net/vpc/aws"},
		"a directory of one of a registry": {"Registry.example.com:8443/net/vpc/aws//modules/subnets", "1.2.3",
			usage.Origin{Location: usage.Location{Kind: usage.Registry, Address: "Registry.example.com:8443/net/vpc/aws", Directory: "modules/subnets"}, Version: "1.2.3"},
			"registry:registry.example.com:8443/net/vpc/aws"},
		"a local one":  {"./modules/a", "", usage.Origin{Location: usage.Location{Kind: usage.Local, Directory: "./modules/a"}}, ""},
		"one above it": {"../a", "", usage.Origin{Location: usage.Location{Kind: usage.Local, Directory: "../a"}}, ""},
		"of git": {"git::https://git.example.com/team/mods.git//vpc?ref=v1.2.0&depth=1", "",
			usage.Origin{Location: usage.Location{Kind: usage.Git, Address: "https://git.example.com/team/mods.git", Directory: "vpc"}, Version: "v1.2.0"}, "url:git.example.com/team/mods"},
		"of git by ssh": {"git::ssh://git@git.example.com/team/mods.git?ref=main", "",
			usage.Origin{Location: usage.Location{Kind: usage.Git, Address: "ssh://git@git.example.com/team/mods.git"}, Version: "main"}, "url:git.example.com/team/mods"},
		"of git with a token": {"git::https://x:ghp_secret@git.example.com/team/mods", "",
			usage.Origin{Location: usage.Location{Kind: usage.Git, Address: "https://git.example.com/team/mods"}}, "url:git.example.com/team/mods"},
		"an archive": {"https://files.example.com/mods/vpc.zip?token=secret", "",
			usage.Origin{Location: usage.Location{Kind: usage.Archive, Address: "https://files.example.com/mods/vpc.zip"}}, "url:files.example.com/mods/vpc.zip"},
		"of an OCI registry": {"oci://reg.example.com/mods/vpc//a?tag=1.0.0", "",
			usage.Origin{Location: usage.Location{Kind: usage.OCI, Address: "oci://reg.example.com/mods/vpc", Directory: "a"}, Version: "1.0.0"}, "url:reg.example.com/mods/vpc"},
		"a directory that leads up": {"git::https://git.example.com/a//../../etc", "",
			usage.Origin{Location: usage.Location{Kind: usage.Git, Address: "https://git.example.com/a", Directory: "etc"}}, "url:git.example.com/a"},
		"nothing": {"", "", usage.Origin{Location: usage.Location{Kind: usage.Archive}}, "url:/"},
	} {
		t.Run(name, func(t *testing.T) {
			got := usage.ParseSource(tt.source, tt.version)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseSource() differs (-want +got):\n%s", diff)
			}
			if got.Key() != tt.key {
				t.Errorf("Key() = %q, want %q", got.Key(), tt.key)
			}
		})
	}
}

// Whatever spelling of an address users know, they find the same module.
func TestAskedModules(t *testing.T) {
	const repo = "url:git.example.com/team/mods"
	for text, want := range map[string]usage.Asked{
		"net/vpc/aws":                                      {Name: "net/vpc/aws"},
		"net/vpc/aws//modules/a":                           {Name: "net/vpc/aws"},
		"Registry.example.com/net/vpc/aws":                 {Keys: []string{"url:registry.example.com/net/vpc/aws", "registry:registry.example.com/net/vpc/aws"}},
		"127.0.0.1:8443/net/vpc/aws":                       {Keys: []string{"url:127.0.0.1:8443/net/vpc/aws", "registry:127.0.0.1:8443/net/vpc/aws"}},
		"https://git.example.com/team/mods.git":            {Keys: []string{repo}},
		"https://git.example.com/team/mods/":               {Keys: []string{repo}},
		"git::https://git.example.com/team/mods.git?ref=x": {Keys: []string{repo}},
		"git@git.example.com:team/mods.git":                {Keys: []string{repo}},
		"ssh://git@git.example.com/team/mods":              {Keys: []string{repo}},
		"git.example.com/team/mods":                        {Keys: []string{repo}},
		"oci://git.example.com/team/mods?tag=1":            {Keys: []string{repo}},
	} {
		got, err := usage.ParseAsked(text)
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("ParseAsked(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "a/b", "./a", "../a/b/c", "a b/c/d", "a\nb", strings.Repeat("a", 3000)} {
		if got, err := usage.ParseAsked(text); fault.Of(err) != fault.Invalid {
			t.Errorf("ParseAsked(%.20q) = %+v, %v, want Invalid", text, got, err)
		}
	}
}

// Credentials in a source are masked, whatever the getter.
func TestSourcesHoldNoCredentials(t *testing.T) {
	for _, source := range []string{
		"git::https://user:hunter2-token@git.example.com/a.git?ref=v1",
		"git::https://hunter2-token@git.example.com/a.git",
		"git::ssh://git@git.example.com/a.git?sshkey=hunter2-token&ref=v1",
		"git@git.example.com:a.git?ref=v1&SSHKEY=hunter2-token",
		"https://files.example.com/a.zip?access_token=hunter2-token",
		"s3::https://s3.amazonaws.com/b/a.zip?aws_access_key_secret=hunter2-token",
	} {
		o := usage.ParseSource(source, "")
		all := fmt.Sprintf("%+v %s %s", o, usage.Masked(source), o.Key())
		if strings.Contains(all, "hunter2") {
			t.Errorf("of %s: %s", source, all)
		}
	}
}

func someUsage() usage.Usage {
	return usage.Usage{
		Modules: []usage.Module{
			{Path: "module.b", Source: "registry.opentofu.org/net/b/aws", Location: usage.Location{Kind: usage.Registry, Address: "registry.opentofu.org/net/b/aws"}, Version: "1.0.0"},
			{Path: "module.a", Source: "./a", Location: usage.Location{Kind: usage.Local, Directory: "./a"}},
		},
		Providers: []usage.Provider{{Source: "registry.opentofu.org/hashicorp/aws", Version: "6.0.0", Hashes: []string{"h1:x"}, Required: []usage.Requirement{{Module: "module.a", Name: "aws"}, {Name: "aws"}}}},
	}
}

// An entry keeps its time until its version changes.
func TestSince(t *testing.T) {
	first := someUsage().Tidy().Since(usage.Usage{}, noon)
	next := someUsage()
	next.Modules[0].Version = "1.1.0"
	second := next.Tidy().Since(first, noon.Add(time.Hour))
	got := map[string]time.Time{}
	for _, m := range second.Modules {
		got[m.Path] = m.Since
	}
	got["aws"] = second.Providers[0].Since
	if diff := cmp.Diff(map[string]time.Time{"module.a": noon, "module.b": noon.Add(time.Hour), "aws": noon}, got); diff != "" {
		t.Errorf("times differ (-want +got):\n%s", diff)
	}
	if first.Digest() != someUsage().Tidy().Digest() || first.Digest() == second.Digest() {
		t.Error("the digest depends on times, or not on versions")
	}
}

// A run that is elsewhere may leave anything.
func TestParseBoundsEverything(t *testing.T) {
	many := usage.Usage{}
	for i := range 12_000 {
		many.Modules = append(many.Modules, usage.Module{Path: fmt.Sprintf("module.m%d", i)})
		many.Problems = append(many.Problems, fmt.Sprintf("x\n%d", i))
	}
	large := usage.Usage{Providers: []usage.Provider{{Source: "a/b/c", Version: "1"}}}
	for i := range 5_000 {
		large.Modules = append(large.Modules, usage.Module{Path: fmt.Sprintf("module.m%d", i), Declared: strings.Repeat("d", 1100)})
	}
	odd := usage.Usage{Modules: []usage.Module{{Path: "module.a\x1b[31m\n", Declared: strings.Repeat("é", 5000), Line: -4, Since: noon, Source: "git::https://u:hunter2-token@h/x"}},
		Providers: []usage.Provider{{Source: "a", Hashes: make([]string, 9000), Required: make([]usage.Requirement, 20_000)}}}
	for name, tt := range map[string]struct {
		in        usage.Usage
		modules   int
		providers int
		says      string
	}{
		"many calls":       {many, 10_000, 0, "2000 more calls of modules are left out"},
		"large texts":      {large, 0, 1, "more calls of modules are left out"},
		"odd characters":   {odd, 1, 1, ""},
		"nothing":          {usage.Usage{}, 0, 0, ""},
		"what is in order": {someUsage(), 2, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := usage.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.Modules); tt.modules > 0 && n != tt.modules || len(got.Providers) != tt.providers {
				t.Errorf("%d modules and %d providers, want %d and %d", n, len(got.Providers), tt.modules, tt.providers)
			}
			if all := strings.Join(got.Problems, "\n"); !strings.Contains(all, tt.says) || len(got.Problems) > 25 {
				t.Errorf("problems = %.300q, want %q", all, tt.says)
			}
			text, err := json.Marshal(got)
			if err != nil || len(text) > usage.MaxBytes || strings.Contains(string(text), "hunter2") || strings.Contains(string(text), `\n`) || strings.Contains(string(text), `\u001b`) {
				t.Errorf("%d bytes, %v: %.300s", len(text), err, text)
			}
			again, err := usage.Parse(text)
			if diff := cmp.Diff(got, again); err != nil || diff != "" && name != "odd characters" {
				t.Errorf("read again it differs: %v\n%s", err, diff)
			}
		})
	}
	for _, data := range []string{"", "[]", "{", `{"modules":{}}`, strings.Repeat(" ", usage.MaxBytes+1)} {
		if _, err := usage.Parse([]byte(data)); fault.Of(err) != fault.Invalid {
			t.Errorf("Parse(%.20q) = %v, want Invalid", data, err)
		}
	}
}

func FuzzParseSource(f *testing.F) {
	f.Add("git::https://u:p@h/x.git//d?ref=v1", "")
	f.Add("registry.opentofu.org/a/b/c//d", "1.0.0")
	f.Add("git@h:x", "")
	f.Fuzz(func(t *testing.T, source, version string) {
		o := usage.ParseSource(source, version)
		_, _, _ = o.Key(), o.Name(), usage.Masked(source)
		_, _ = usage.ParseAsked(source)
		if strings.HasPrefix(o.Directory, "/") {
			t.Errorf("ParseSource(%q).Directory = %q", source, o.Directory)
		}
	})
}

package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
)

func TestParseGreeting(t *testing.T) {
	got, err := ParseGreeting("1|6|unix|/tmp/plugin123|grpc||true\n")
	if want := (Greeting{6, "/tmp/plugin123"}); err != nil || got != want {
		t.Errorf("ParseGreeting() = %+v, %v, want %+v", got, err, want)
	}
	for name, line := range map[string]string{
		"for people":                 "This binary is a plugin.",
		"nothing":                    "",
		"of another core":            "2|5|unix|/tmp/x|grpc|",
		"of an older protocol":       "1|4|unix|/tmp/x|grpc|",
		"of no protocol":             "1|x|unix|/tmp/x|grpc|",
		"over net/rpc":               "1|5|unix|/tmp/x|netrpc|",
		"over TCP":                   "1|5|tcp|127.0.0.1:1234|grpc|",
		"at a relative path":         "1|5|unix|x|grpc|",
		"at a path with characters":  "1|5|unix|/tmp/\x01|grpc|",
		"with a certificate":         "1|5|unix|/tmp/x|grpc|MIIB",
		"that is cut off":            "1|5|unix|/tmp/x",
		"that is more than one line": "1|5|unix|/tmp/x\n1|5|unix|/tmp/y|grpc|",
	} {
		if got, err := ParseGreeting(line); err == nil {
			t.Errorf("a greeting %s = %+v, want an error", name, got)
		}
	}
}

func TestReattachEnviron(t *testing.T) {
	got, err := ReattachEnviron([]Served{{"registry.opentofu.org/hashicorp/random", 7, Greeting{5, "/tmp/x"}}})
	const want = `TF_REATTACH_PROVIDERS={"registry.opentofu.org/hashicorp/random":{"Protocol":"grpc","ProtocolVersion":5,"Pid":7,"Test":true,"Addr":{"Network":"unix","String":"/tmp/x"}}}`
	if err != nil || got != want {
		t.Errorf("ReattachEnviron() = %s, %v, want %s", got, err, want)
	}
}

func TestExecutable(t *testing.T) {
	l := Locked{Address: "registry.opentofu.org/hashicorp/random", Version: "2.0.0"}
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"with a version":    {[]string{"terraform-provider-random_v2.0.0", "README"}, "terraform-provider-random_v2.0.0"},
		"without":           {[]string{"terraform-provider-random"}, "terraform-provider-random"},
		"of another type":   {[]string{"terraform-provider-randomly_v2"}, ""},
		"two of them":       {[]string{"terraform-provider-random", "terraform-provider-random_v2"}, ""},
		"none":              {[]string{"README"}, ""},
		"in a directory":    {[]string{"terraform-provider-random_v2/x"}, ""},
		"with an extension": {[]string{"terraform-provider-random.exe"}, "terraform-provider-random.exe"},
	} {
		pkg := fstest.MapFS{}
		for _, f := range c.files {
			pkg[f] = &fstest.MapFile{}
		}
		got, err := Executable(pkg, l)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: Executable() = %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestTheCookieIsTheEngines(t *testing.T) {
	path, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("no engine to compare with, `make build` makes it: %v", err)
	}
	const cookie = "TF_PLUGIN_MAGIC_COOKIE="
	i := slices.IndexFunc(PluginEnviron(), func(v string) bool { return len(v) > len(cookie) && v[:len(cookie)] == cookie })
	if i < 0 || !bytes.Contains(program, []byte(PluginEnviron()[i][len(cookie):])) {
		t.Error("the engine does not know the cookie")
	}
}

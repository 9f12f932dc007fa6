package origin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

func TestTagsThatAreVersions(t *testing.T) {
	one := Repository{Key: Key{"network", "vpc"}, URL: "https://git.example.com/vpc.git", Module: "vpc/aws"}
	many := Repository{Key: Key{"network", "modules"}, URL: "https://git.example.com/modules.git", Module: "{name}/{system}", Tags: "{system}/{name}-{version}", Directory: "modules/{system}/{name}"}
	for name, tt := range map[string]struct {
		of   Repository
		tag  string
		want string // module version directory, or the reason
	}{
		"a version":                             {one, "1.2.3", "network/vpc/aws 1.2.3 ."},
		"a leading v":                           {one, "v1.2.3", "network/vpc/aws 1.2.3 ."},
		"a pre-release":                         {one, "v1.2.3-rc.1", "network/vpc/aws 1.2.3-rc.1 ."},
		"build metadata":                        {one, "v1.2.3+5", "build metadata"},
		"two numbers":                           {one, "v1.2", "no version in the form {version}"},
		"a leading zero":                        {one, "v1.02.3", "is no version"},
		"a word":                                {one, "latest", "no version in the form {version}"},
		"a prefix that is not asked for":        {one, "vpc/v1.2.3", "no version in the form {version}"},
		"a line break":                          {one, "v1.2.3\n", "no version in the form {version}"},
		"the module of a tag":                   {many, "aws/vpc-v1.2.3", "network/vpc/aws 1.2.3 modules/aws/vpc"},
		"a dash in the name":                    {many, "aws/net-work-1.2.3-rc1", "network/net-work/aws 1.2.3-rc1 modules/aws/net-work"},
		"a name that looks like a version":      {many, "aws/net-v2-1.2.3", "network/net-v2/aws 1.2.3 modules/aws/net-v2"},
		"a name that no module can have":        {many, "aws/net--1.2.3", "cannot be the name of a module"},
		"a name that leads out":                 {many, "aws/../x-1.2.3", "no version in the form"},
		"a prefix without placeholders":         {Repository{Key: one.Key, Module: "vpc/aws", Tags: "vpc/{version}", Directory: "vpc"}, "vpc/v1.2.3", "network/vpc/aws 1.2.3 vpc"},
		"the namespace may be in the module":    {Repository{Key: one.Key, Module: "network/vpc/aws"}, "1.0.0", "network/vpc/aws 1.0.0 ."},
		"characters with a meaning in patterns": {Repository{Key: one.Key, Module: "vpc/aws", Tags: "vpc(.*)+{version}"}, "vpc(.*)+1.0.0", "network/vpc/aws 1.0.0 ."},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := tt.of.forms()
			if err != nil {
				t.Fatal(err)
			}
			all, skipped := f.candidates([]source.Tag{{Name: tt.tag}})
			got := ""
			for _, c := range all {
				got = c.String() + " " + c.directory
			}
			for _, s := range skipped {
				got = s.Reason
			}
			if got != tt.want && (len(skipped) == 0 || !strings.Contains(got, tt.want)) {
				t.Errorf("the tag %q is %q, want %q", tt.tag, got, tt.want)
			}
		})
	}
}

// An error names the setting, and the way out.
func TestSettingsThatCannotBe(t *testing.T) {
	for name, tt := range map[string]struct {
		of   Repository
		says string
	}{
		"no module":                            {Repository{}, "write NAME/SYSTEM"},
		"another namespace":                    {Repository{Module: "platform/vpc/aws"}, "publishes in the namespace where it is registered"},
		"a system that cannot be":              {Repository{Module: "vpc/AWS"}, "cannot be the target system"},
		"no version in tags":                   {Repository{Module: "vpc/aws", Tags: "v*"}, "{version} 0 times"},
		"two versions in tags":                 {Repository{Module: "vpc/aws", Tags: "{version}-{version}"}, "{version} 2 times"},
		"another placeholder":                  {Repository{Module: "vpc/aws", Tags: "{branch}/{version}"}, "the placeholders are"},
		"a name that tags do not have":         {Repository{Module: "{name}/aws"}, "which tags \"{version}\" does not have"},
		"a directory of a name":                {Repository{Module: "vpc/aws", Directory: "modules/{name}"}, "does not have"},
		"tags of several modules":              {Repository{Module: "vpc/aws", Tags: "{name}/{version}"}, "would be versions of one"},
		"a directory that leads out":           {Repository{Module: "vpc/aws", Directory: "../other"}, "does not stay in the repository"},
		"what the owner of the entry said":     {Repository{Module: "vpc/aws", Invalid: invalid("spec.x is not supported")}, "spec.x is not supported"},
		"a directory that leads out on a turn": {Repository{Module: "vpc/aws", Directory: "a/../../b"}, "does not stay in the repository"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.of.Key = Key{"network", "x"}
			err := tt.of.Check()
			if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Check() = %v, want one that says %q", err, tt.says)
			}
		})
	}
}

func TestURLsAreShownWithoutUsers(t *testing.T) {
	got := map[string]string{}
	for _, url := range []string{"https://git.example.com/a@b", "ssh://git@git.example.com:22/a", "https://token@git.example.com/a", "x"} {
		got[url] = shown(url)
	}
	want := map[string]string{
		"https://git.example.com/a@b": "https://git.example.com/a@b", "ssh://git@git.example.com:22/a": "ssh://git.example.com:22/a",
		"https://token@git.example.com/a": "https://git.example.com/a", "x": "x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

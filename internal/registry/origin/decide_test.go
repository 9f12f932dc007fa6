package origin

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/source"
)

const (
	red  = "1111111111111111111111111111111111111111"
	blue = "2222222222222222222222222222222222222222"
)

func TestDecide(t *testing.T) {
	vpc, err := address.ParseModule("network/vpc/aws")
	if err != nil {
		t.Fatal(err)
	}
	r := Repository{Key: Key{"network", "vpc"}, URL: "https://git.example.com/vpc.git", Module: "vpc/aws"}
	tag := func(name, commit string) source.Tag { return source.Tag{Name: name, Object: commit, Commit: commit} }
	from := func(name, commit string) registry.ModuleVersion {
		return registry.ModuleVersion{Origin: &registry.Origin{Repository: r.URL, Tag: name, Commit: commit}}
	}
	type versions map[address.Version]registry.ModuleVersion
	for name, tt := range map[string]struct {
		tags     []source.Tag
		has      versions
		known    map[string]Outcome
		take     []string
		there    int
		skipped  string
		problems []string // reason and a part of the text
	}{
		"new tags are taken, the newest first":         {tags: []source.Tag{tag("v1.0.0", red), tag("v1.10.0", red), tag("v1.2.0", blue)}, take: []string{"v1.10.0", "v1.2.0", "v1.0.0"}},
		"what was taken is there":                      {tags: []source.Tag{tag("v1.0.0", red)}, has: versions{"1.0.0": from("v1.0.0", red)}, there: 1},
		"a tag that moved changes nothing":             {tags: []source.Tag{tag("v1.0.0", blue)}, has: versions{"1.0.0": from("v1.0.0", red)}, there: 1, problems: []string{ReasonMoved, "the commit 111111111111, and the tag is at 222222222222 now"}},
		"a tag that is gone deletes nothing":           {has: versions{"1.0.0": from("v1.0.0", red)}, there: 1},
		"two tags of one version count once":           {tags: []source.Tag{tag("1.0.0", red), tag("v1.0.0", red)}, has: versions{"1.0.0": from("v1.0.0", red)}, there: 1},
		"a retracted version stays retracted":          {tags: []source.Tag{tag("v1.0.0", red)}, has: versions{"1.0.0": {Origin: from("v1.0.0", red).Origin, Retracted: &registry.Retraction{Reason: "bad"}}}, there: 1},
		"a tag for a retracted upload":                 {tags: []source.Tag{tag("v1.0.0", red)}, has: versions{"1.0.0": {Retracted: &registry.Retraction{Reason: "bad"}}}, skipped: "v1.0.0: version 1.0.0 of network/vpc/aws was uploaded, and retracted: bad"},
		"an upload is compared once":                   {tags: []source.Tag{tag("v1.0.0", red)}, has: versions{"1.0.0": {By: "ann"}}, take: []string{"v1.0.0"}},
		"an upload with the same bytes":                {tags: []source.Tag{tag("v1.0.0", red)}, has: versions{"1.0.0": {By: "ann"}}, known: map[string]Outcome{"v1.0.0": {Object: red}}, there: 1},
		"an upload with other bytes":                   {tags: []source.Tag{tag("v1.0.0", red)}, has: versions{"1.0.0": {By: "ann"}}, known: map[string]Outcome{"v1.0.0": {Object: red, Text: "other content", Problem: true}}, problems: []string{ReasonOther, "other content"}},
		"a tag that is no module is not fetched again": {tags: []source.Tag{tag("v1.0.0", red)}, known: map[string]Outcome{"v1.0.0": {Object: red, Text: "no module"}}, skipped: "v1.0.0: no module"},
		"a skipped tag that moved is tried again":      {tags: []source.Tag{tag("v1.0.0", blue)}, known: map[string]Outcome{"v1.0.0": {Object: red, Text: "no module"}}, take: []string{"v1.0.0"}},
		"a tag that failed waits for the others":       {tags: []source.Tag{tag("v1.0.0", red), tag("v2.0.0", red)}, known: map[string]Outcome{"v2.0.0": {Object: red, Failures: 2}}, take: []string{"v1.0.0", "v2.0.0"}},
		"two tags of one commit":                       {tags: []source.Tag{tag("1.0.0", red), {Name: "v1.0.0", Object: blue, Commit: red}}, take: []string{"v1.0.0"}},
		"two tags of two commits":                      {tags: []source.Tag{tag("1.0.0", red), tag("v1.0.0", blue)}, problems: []string{ReasonTwoTags, "1.0.0 at 111111111111 and v1.0.0 at 222222222222"}},
		"a second tag after the first was taken":       {tags: []source.Tag{tag("1.0.0", red), tag("v1.0.0", blue)}, has: versions{"1.0.0": from("1.0.0", red)}, there: 1, problems: []string{ReasonMoved, "delete the tag v1.0.0"}},
		"another repository had the version first": {tags: []source.Tag{tag("v1.0.0", blue)}, has: versions{"1.0.0": {Origin: &registry.Origin{Repository: "https://git.example.com/other", Tag: "v1.0.0", Commit: red}}},
			problems: []string{ReasonOther, "register one repository for the module"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := r.forms()
			if err != nil {
				t.Fatal(err)
			}
			all, _ := f.candidates(tt.tags)
			d := decide(r.URL, all, published{vpc: tt.has}, tt.known)
			there := len(d.there[vpc])
			var take, skipped []string
			for _, c := range d.take {
				take = append(take, c.Name)
			}
			for _, s := range d.skipped {
				skipped = append(skipped, s.Tag+": "+s.Reason)
			}
			if !slices.Equal(take, tt.take) || there != tt.there || strings.Join(skipped, "\n") != tt.skipped {
				t.Errorf("decide() takes %q, has %d and skips %q, want %q, %d, %q", take, there, skipped, tt.take, tt.there, tt.skipped)
			}
			switch problems, all := d.problems(); {
			case all != len(problems), len(tt.problems) == 0 && all > 0, len(tt.problems) > 0 && all != 1:
				t.Errorf("%d problems are %+v, want %q", all, problems, tt.problems)
			case all > 0 && (problems[0].Reason != tt.problems[0] || !strings.Contains(problems[0].Text, tt.problems[1])):
				t.Errorf("the problem is %+v, want %q", problems[0], tt.problems)
			}
		})
	}
}

// The newest version of each module comes before the second newest of any.
func TestModulesTakeTurns(t *testing.T) {
	r := Repository{Key: Key{"network", "modules"}, Module: "{name}/aws", Tags: "{name}/{version}", Directory: "{name}"}
	f, err := r.forms()
	if err != nil {
		t.Fatal(err)
	}
	var tags []source.Tag
	for _, name := range []string{"dns/v0.1.0", "dns/v0.2.0", "vpc/v1.0.0", "vpc/v2.0.0", "vpc/v3.0.0"} {
		tags = append(tags, source.Tag{Name: name, Object: red, Commit: red})
	}
	all, _ := f.candidates(tags)
	var got []string
	for _, c := range decide(r.URL, all, published{}, nil).take {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"dns/v0.2.0", "vpc/v3.0.0", "dns/v0.1.0", "vpc/v2.0.0", "vpc/v1.0.0"}, got); diff != "" {
		t.Error(diff)
	}
}

// The newest version is the one that clients choose, and not the one that was published last.
func TestNewest(t *testing.T) {
	gone := &registry.Retraction{Reason: "bad"}
	for name, tt := range map[string]struct {
		has  map[address.Version]registry.ModuleVersion
		want address.Version
	}{
		"none":                      {nil, ""},
		"by number and not by text": {map[address.Version]registry.ModuleVersion{"1.9.0": {}, "1.10.0": {}}, "1.10.0"},
		"no pre-release":            {map[address.Version]registry.ModuleVersion{"1.9.0": {}, "2.0.0-rc1": {}}, "1.9.0"},
		"only pre-releases":         {map[address.Version]registry.ModuleVersion{"2.0.0-rc2": {}, "2.0.0-rc1": {}}, "2.0.0-rc2"},
		"none that is retracted":    {map[address.Version]registry.ModuleVersion{"1.9.0": {}, "1.10.0": {Retracted: gone}}, "1.9.0"},
		"all are retracted":         {map[address.Version]registry.ModuleVersion{"1.10.0": {Retracted: gone}}, ""},
	} {
		if got := newest(tt.has); got != tt.want {
			t.Errorf("%s: newest() = %q, want %q", name, got, tt.want)
		}
	}
}

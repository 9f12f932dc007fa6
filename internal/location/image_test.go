package location

import "testing"

func TestParseImage(t *testing.T) {
	for text, want := range map[string][2]string{
		"docker.io/alustan/terrform (image name to be built and push by the controller)": {"docker.io/alustan/terrform", "(image name to be built and push by the controller)"},
		"ghcr.io/team/net":       {"ghcr.io/team/net", ""},
		" ghcr.io/team/net\n ":   {"ghcr.io/team/net", ""},
		"team/net":               {"docker.io/team/net", ""},
		"localhost:5000/net":     {"localhost:5000/net", ""},
		"[::1]:5000/a/b__c/d-.5": {"", ""},
		"[::1]:5000/a/b__c/d-5":  {"[::1]:5000/a/b__c/d-5", ""},
	} {
		repository, comment, err := ParseImage(text)
		if want[0] == "" {
			if err == nil {
				t.Errorf("ParseImage(%q) = %q, want an error", text, repository)
			}
			continue
		}
		if err != nil || [2]string{repository, comment} != want {
			t.Errorf("ParseImage(%q) = %q, %q, %v, want %q", text, repository, comment, err, want)
		}
	}
	for _, text := range []string{"", "  ", "(nothing)", "ghcr.io/team/net:v1", "ghcr.io/Team/Net", "ghcr.io/team/net and more", "https://ghcr.io/team/net", "ghcr.io/", "ghcr.io/../net", "-x.io/net"} {
		if repository, _, err := ParseImage(text); err == nil {
			t.Errorf("ParseImage(%q) = %q, want an error", text, repository)
		}
	}
}

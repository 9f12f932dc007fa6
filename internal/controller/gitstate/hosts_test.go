package gitstate

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// States and credentials go to the hosts that the operator listed, and to no other one. The
// Secret is not read for another one: there is no client here.
func TestStatesGoToListedHostsAlone(t *testing.T) {
	for _, c := range []struct {
		repository string
		hosts      []string
		want       string
	}{
		{"https://git.example.org/team/states", nil, "keeps no states on the host git.example.org"},
		{"https://evil.example/git.example.org/states", []string{"git.example.org"}, "keeps no states on the host evil.example"},
		{"https://git.example.org@evil.example/states", []string{"git.example.org"}, "credentials"},
		{"https://git.example.org:8443/team/states", []string{"git.example.org:443"}, "--state-git-host git.example.org:8443"},
		{"git@evil.example:team/states", []string{"git.example.org"}, "keeps no states on the host evil.example"},
		{"https://git.example.org/team/states", []string{"git.example.org"}, ""},
		{"https://git.example.org:8443/team/states", []string{"git.example.org"}, ""},
		{"git@git.example.org:team/states", []string{"git.example.org"}, ""},
		{"https://any.example/team/states", []string{"*"}, ""},
	} {
		err := (&States{Hosts: c.hosts}).allowed(c.repository)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %q: %v, want %q", c.repository, c.hosts, err, c.want)
		}
	}
	for name, s := range map[string]*States{"of no listed host": {}, "with the rights of accounts": {Hosts: []string{"*"}, AsAccount: true}} {
		_, err := s.Load(t.Context(), kube.StateRef{Namespace: "a", Git: &stack.GitPlace{Repository: "https://evil.example/x/y", Branch: "b", Path: "p", Secret: "s"}})
		if err == nil {
			t.Errorf("a state %s is read", name)
		}
	}
}

package notify

import "testing"

func TestWants(t *testing.T) {
	about := func(kind, namespace, name string) []Source {
		return []Source{{Kind: kind, Namespace: namespace, Name: name}}
	}
	all := about("Terraform", "", Any)
	e := event(1)
	e.Labels = map[string]string{"env": "prod"}
	for name, tt := range map[string]struct {
		alert         Alert
		across, wants bool
	}{
		"any of its kind":                  {Alert{Namespace: "team", Sources: all}, false, true},
		"by name":                          {Alert{Namespace: "team", Sources: about("Terraform", "team", "network")}, false, true},
		"another name":                     {Alert{Namespace: "team", Sources: about("Terraform", "", "other")}, false, false},
		"another kind":                     {Alert{Namespace: "team", Sources: about("Tenant", "", Any)}, false, false},
		"no source":                        {Alert{Namespace: "team"}, false, false},
		"of another namespace":             {Alert{Namespace: "spies", Sources: about("Terraform", "team", Any)}, false, false},
		"of another namespace, as allowed": {Alert{Namespace: "ops", Sources: about("Terraform", "team", Any)}, true, true},
		"not of all namespaces":            {Alert{Namespace: "ops", Sources: all}, true, false},
		"by label":                         {Alert{Namespace: "team", Sources: []Source{{Kind: "Terraform", Name: Any, Labels: map[string]string{"env": "prod"}}}}, false, true},
		"another label":                    {Alert{Namespace: "team", Sources: []Source{{Kind: "Terraform", Name: Any, Labels: map[string]string{"env": "test"}}}}, false, false},
		"only errors":                      {Alert{Namespace: "team", Sources: all, Severity: Error}, false, false},
		"info is everything":               {Alert{Namespace: "team", Sources: all, Severity: Info}, false, true},
		"suspended":                        {Alert{Namespace: "team", Sources: all, Suspended: true}, false, false},
		"included":                         {Alert{Namespace: "team", Sources: all, Include: []string{"^Applied", "pending"}}, false, true},
		"not included":                     {Alert{Namespace: "team", Sources: all, Include: []string{"^Applied"}}, false, false},
		"excluded":                         {Alert{Namespace: "team", Sources: all, Include: []string{"pending"}, Exclude: []string{"waits"}}, false, false},
	} {
		if got, err := tt.alert.Wants(e, tt.across); got != tt.wants || err != nil {
			t.Errorf("%s: Wants() = %v, %v, want %v", name, got, err, tt.wants)
		}
	}
	for _, broken := range []Alert{{Namespace: "team", Sources: all, Include: []string{"("}}, {Namespace: "team", Sources: all, Exclude: []string{"("}}} {
		if got, err := broken.Wants(e, false); got || err == nil {
			t.Errorf("an expression that cannot be used gave %v, %v, want nothing sent and an error", got, err)
		}
	}
}

func TestSummaryIsMetadata(t *testing.T) {
	r := Alert{Namespace: "team", Provider: "hook", Summary: "prod", Metadata: map[string]string{"cluster": "a"}}.Route()
	if r.Namespace != "team" || r.Provider != "hook" || r.Metadata["summary"] != "prod" || r.Metadata["cluster"] != "a" {
		t.Errorf("Route() = %+v", r)
	}
}

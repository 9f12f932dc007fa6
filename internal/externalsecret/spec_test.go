package externalsecret

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// good is a spec that is served.
func good(change ...func(*Spec)) Spec {
	s := Spec{
		SecretStoreRef: StoreRef{Name: "vault"},
		Data:           []Data{{SecretKey: "password", RemoteRef: RemoteRef{Key: "database", Property: "mariadb_password"}}},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func TestWhatIsLeftOutHasTheDefaultsOfTheAPI(t *testing.T) {
	s := good()
	if err := s.Check("app"); err != nil {
		t.Fatal(err)
	}
	if s.Target.Name != "app" || s.Target.CreationPolicy != Owner || s.Target.DeletionPolicy != Retain || s.RefreshPolicy != Periodic || s.SecretStoreRef.Kind != SecretStore {
		t.Errorf("Check() made %+v", s)
	}
	if d, err := s.Interval(); err != nil || d != time.Hour {
		t.Errorf("Interval() = %v, %v, want an hour", d, err)
	}
}

func TestWhatIsNotServedIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Spec)
		reason string
		says   string
	}{
		"an immutable target":         {func(s *Spec) { s.Target.Immutable = true }, ReasonUnsupported, "spec.target.immutable"},
		"another creation policy":     {func(s *Spec) { s.Target.CreationPolicy = "Replace" }, ReasonUnsupported, `spec.target.creationPolicy "Replace"`},
		"another deletion policy":     {func(s *Spec) { s.Target.DeletionPolicy = "Purge" }, ReasonUnsupported, `spec.target.deletionPolicy "Purge"`},
		"metadata of Vault":           {func(s *Spec) { s.Data[0].RemoteRef.MetadataPolicy = "Fetch" }, ReasonUnsupported, `spec.data[0].remoteRef.metadataPolicy "Fetch"`},
		"an engine of before":         {func(s *Spec) { s.Target.Template = &Template{EngineVersion: "v1"} }, ReasonUnsupported, `engineVersion "v1"`},
		"a state":                     {func(s *Spec) { s.Target.Name = "tfstate-default-net" }, ReasonInvalid, "Terrier keeps for itself"},
		"no store":                    {func(s *Spec) { s.SecretStoreRef.Name = "" }, ReasonInvalid, "spec.secretStoreRef.name"},
		"nothing to read":             {func(s *Spec) { s.Data = nil }, ReasonInvalid, "spec.data or spec.dataFrom"},
		"a key that no Secret has":    {func(s *Spec) { s.Data[0].SecretKey = "a b" }, ReasonInvalid, "spec.data[0].secretKey"},
		"no secret":                   {func(s *Spec) { s.Data[0].RemoteRef.Key = "" }, ReasonInvalid, "spec.data[0].remoteRef.key"},
		"a version that is none":      {func(s *Spec) { s.Data[0].RemoteRef.Version = "latest" }, ReasonInvalid, "spec.data[0].remoteRef.version"},
		"an interval that is none":    {func(s *Spec) { s.RefreshInterval = "often" }, ReasonInvalid, "spec.refreshInterval"},
		"to delete what is another's": {func(s *Spec) { s.Target.CreationPolicy, s.Target.DeletionPolicy = Merge, Delete }, ReasonInvalid, "not the object's to delete"},
		"a type for another's Secret": {func(s *Spec) { s.Target.CreationPolicy, s.Target.Template = Merge, &Template{Type: "x"} }, ReasonInvalid, "the Secret is another's"},
		"a token of a ServiceAccount": {func(s *Spec) { s.Target.Template = &Template{Type: "kubernetes.io/service-account-token"} }, ReasonInvalid, "the cluster trusts them"},
		"an annotation of Terrier": {func(s *Spec) {
			s.Target.Template = &Template{Metadata: TemplateMetadata{Annotations: map[string]string{MarkName("x"): "{}"}}}
		}, ReasonInvalid, "which Terrier writes itself"},
		"a template that is none":        {func(s *Spec) { s.Target.Template = &Template{Data: map[string]string{"a": "{{ .x"}} }, ReasonInvalid, "spec.target.template.data[a]"},
		"a function that is not allowed": {func(s *Spec) { s.Target.Template = &Template{Data: map[string]string{"a": "{{ now }}"}} }, ReasonInvalid, "now"},
	} {
		t.Run(name, func(t *testing.T) {
			s := good(tt.change)
			err := s.Check("app")
			if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != tt.reason || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Check() = %v (%s), want %s that says %q", err, fault.Reason(err, ""), tt.reason, tt.says)
			}
		})
	}
}

func TestWhenSecretsAreReadAgain(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	there := Live{Exists: true, Ours: true}
	for name, tt := range map[string]struct {
		policy   RefreshPolicy
		interval string
		times    Times
		live     Live
		inSync   bool
		due      bool
		next     time.Time
	}{
		"for the first time":                       {Periodic, "1h", Times{Now: at}, there, true, true, time.Time{}},
		"before the interval is over":              {Periodic, "1h", Times{Now: at, Read: at.Add(-time.Minute)}, there, true, false, at.Add(59 * time.Minute)},
		"once the interval is over":                {Periodic, "1h", Times{Now: at, Read: at.Add(-time.Hour)}, there, true, true, at},
		"if the clock was set back since":          {Periodic, "1h", Times{Now: at, Read: at.Add(time.Minute)}, there, true, true, time.Time{}},
		"never with an interval of 0":              {Periodic, "0", Times{Now: at, Read: at.Add(-100 * time.Hour)}, there, true, false, time.Time{}},
		"with an interval of 0 and another object": {Periodic, "0s", Times{Now: at, Read: at.Add(-time.Hour), Changed: true}, there, true, true, time.Time{}},
		"with an interval of 0 after a failure":    {Periodic, "0", Times{Now: at, Read: at.Add(-time.Hour), Failed: true}, there, true, true, time.Time{}},
		"if another program changed the Secret":    {Periodic, "1h", Times{Now: at, Read: at}, there, false, true, time.Time{}},
		"if the Secret is gone":                    {CreatedOnce, "1h", Times{Now: at, Read: at}, Live{}, false, true, time.Time{}},
		"once, whatever changes":                   {CreatedOnce, "1h", Times{Now: at, Read: at, Changed: true}, there, false, false, time.Time{}},
		"on change and not by time":                {OnChange, "1h", Times{Now: at, Read: at.Add(-100 * time.Hour)}, there, true, false, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := good(func(s *Spec) { s.RefreshPolicy, s.RefreshInterval = tt.policy, tt.interval })
			if err := s.Check("app"); err != nil {
				t.Fatal(err)
			}
			due, next := s.Due(tt.times, tt.live, tt.inSync)
			if due != tt.due || !due && !next.Equal(tt.next) {
				t.Errorf("Due() = %v, %v, want %v, %v", due, next, tt.due, tt.next)
			}
		})
	}
}

func TestStores(t *testing.T) {
	vault := func(change func(*Vault)) StoreSpec {
		v := &Vault{Server: "https://vault.example.com:8200", Auth: Auth{Kubernetes: &KubernetesAuth{Role: "app", ServiceAccountRef: &AccountRef{Name: "app"}}}}
		change(v)
		return StoreSpec{Provider: Provider{Vault: v}}
	}
	for name, tt := range map[string]struct {
		spec      StoreSpec
		namespace string
		says      string // empty if it is served
	}{
		"as it should be":               {vault(func(*Vault) {}), "shop", ""},
		"the own namespace":             {vault(func(v *Vault) { v.Auth.Kubernetes.ServiceAccountRef.Namespace = "shop" }), "shop", ""},
		"the ServiceAccount of another": {vault(func(v *Vault) { v.Auth.Kubernetes.ServiceAccountRef.Namespace = "bank" }), "shop", "uses its own namespace"},
		"a cluster store may name any":  {vault(func(v *Vault) { v.Auth.Kubernetes.ServiceAccountRef.Namespace = "bank" }), "", ""},
		"the Secret of another":         {vault(func(v *Vault) { v.Auth = Auth{TokenSecretRef: &KeyRef{Name: "token", Namespace: "bank"}} }), "shop", "uses its own namespace"},
		"the secret ID of another": {vault(func(v *Vault) {
			v.Auth = Auth{AppRole: &AppRoleAuth{RoleID: "x", SecretRef: &KeyRef{Name: "id", Namespace: "bank"}}}
		}), "shop", "uses its own namespace"},
		"the authority of another": {vault(func(v *Vault) {
			v.CAProvider = &CAProvider{Type: "Secret", Name: "ca", Key: "ca.crt", Namespace: "bank"}
		}), "shop", "uses its own namespace"},
		"nothing that signs in":              {vault(func(v *Vault) { v.Auth = Auth{} }), "shop", "auth is empty"},
		"two that sign in":                   {vault(func(v *Vault) { v.Auth.TokenSecretRef = &KeyRef{Name: "token"} }), "shop", "kubernetes and tokenSecretRef"},
		"the identity of the controller":     {vault(func(v *Vault) { v.Auth.Kubernetes.ServiceAccountRef = nil }), "shop", "signs in to no store as itself"},
		"no encryption":                      {vault(func(v *Vault) { v.Server = "http://vault.example.com" }), "shop", "--allow-plain-http"},
		"credentials in the address":         {vault(func(v *Vault) { v.Server = "https://u:p@vault.example.com" }), "shop", "is not the address of a Vault"},
		"another provider":                   {StoreSpec{}, "shop", "serves no other provider"},
		"conditions of a store of its own":   {func() StoreSpec { s := vault(func(*Vault) {}); s.Conditions = []Condition{{}}; return s }(), "shop", "spec.conditions of a SecretStore"},
		"a header for a server that is late": {vault(func(v *Vault) { v.ForwardInconsistent = true }), "shop", "forwardInconsistent"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.spec.Check(tt.namespace, false)
			if (err == nil) != (tt.says == "") || err != nil && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("Check() = %v, want %q", err, tt.says)
			}
		})
	}
}

func TestWhoMayUseAClusterStore(t *testing.T) {
	labelled := &Selector{MatchLabels: map[string]string{"team": "shop"}}
	for name, tt := range map[string]struct {
		conditions []Condition
		may        bool
	}{
		"all, without conditions":   {nil, true},
		"a namespace that is named": {[]Condition{{Namespaces: []string{"bank", "shop"}}}, true},
		"another one is named":      {[]Condition{{Namespaces: []string{"bank"}}}, false},
		"an expression":             {[]Condition{{NamespaceRegexes: []string{"^sh.p$"}}}, true},
		"another expression":        {[]Condition{{NamespaceRegexes: []string{"^b"}}}, false},
		"labels":                    {[]Condition{{Namespaces: []string{"bank"}}, {NamespaceSelector: labelled}}, true},
		"a condition without any":   {[]Condition{{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := StoreSpec{Conditions: tt.conditions}.Uses("shop", func(s Selector) (bool, error) { return s.MatchLabels["team"] == "shop", nil })
			if (err == nil) != tt.may || err != nil && fault.Of(err) != fault.Denied {
				t.Errorf("Uses() = %v, want %v", err, tt.may)
			}
		})
	}
}

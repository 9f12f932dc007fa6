package externalsecret

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Controller is the value of spec.controller of stores that Terrier serves, besides none.
const Controller = "terrier"

// StoreSpec is that of a SecretStore or ClusterSecretStore, as far as it is served.
type StoreSpec struct {
	Controller      string      `json:"controller"`
	RefreshInterval int64       `json:"refreshInterval"` // seconds
	Provider        Provider    `json:"provider"`
	Conditions      []Condition `json:"conditions"`
}

// Provider is where secrets are.
type Provider struct {
	Vault *Vault `json:"vault"`
}

// Condition says which namespaces may use a ClusterSecretStore. One of its fields has to
// match.
type Condition struct {
	Namespaces        []string  `json:"namespaces"`
	NamespaceRegexes  []string  `json:"namespaceRegexes"`
	NamespaceSelector *Selector `json:"namespaceSelector"`
}

// Selector selects by labels.
type Selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []Expression      `json:"matchExpressions"`
}

// Expression is one condition of a Selector.
type Expression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// Vault is an OpenBao or Vault.
type Vault struct {
	Server              string      `json:"server"`
	Path                string      `json:"path"`
	Version             string      `json:"version"`
	Namespace           string      `json:"namespace"`
	CABundle            []byte      `json:"caBundle"`
	CAProvider          *CAProvider `json:"caProvider"`
	Auth                Auth        `json:"auth"`
	ReadYourWrites      bool        `json:"readYourWrites"`
	ForwardInconsistent bool        `json:"forwardInconsistent"`
}

// CAProvider names an object with a certificate authority.
type CAProvider struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
}

// Auth says who signs in. Exactly one of its fields is set.
type Auth struct {
	Kubernetes     *KubernetesAuth `json:"kubernetes"`
	JWT            *JWTAuth        `json:"jwt"`
	AppRole        *AppRoleAuth    `json:"appRole"`
	TokenSecretRef *KeyRef         `json:"tokenSecretRef"`
}

// KubernetesAuth signs in with the token of a ServiceAccount.
type KubernetesAuth struct {
	MountPath         string      `json:"mountPath"`
	Role              string      `json:"role"`
	ServiceAccountRef *AccountRef `json:"serviceAccountRef"`
	SecretRef         *KeyRef     `json:"secretRef"`
}

// JWTAuth signs in with a token of an issuer.
type JWTAuth struct {
	Path         string        `json:"path"`
	Role         string        `json:"role"`
	SecretRef    *KeyRef       `json:"secretRef"`
	AccountToken *AccountToken `json:"kubernetesServiceAccountToken"`
}

// AccountToken asks for a token of a ServiceAccount.
type AccountToken struct {
	ServiceAccountRef AccountRef `json:"serviceAccountRef"`
	Audiences         []string   `json:"audiences"`
	ExpirationSeconds int64      `json:"expirationSeconds"`
}

// AppRoleAuth signs in with the ID of a role and a secret ID.
type AppRoleAuth struct {
	Path      string  `json:"path"`
	RoleID    string  `json:"roleId"`
	RoleRef   *KeyRef `json:"roleRef"`
	SecretRef *KeyRef `json:"secretRef"`
}

// AccountRef names a ServiceAccount.
type AccountRef struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Audiences []string `json:"audiences"`
}

// KeyRef names a key of a Secret.
type KeyRef struct {
	Name      string `json:"name"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
}

// Check reports what is wrong or not served. Namespace is that of a SecretStore, empty for a
// ClusterSecretStore. Plain reports whether servers may be asked without encryption.
func (s StoreSpec) Check(namespace string, plain bool) error {
	v := s.Provider.Vault
	if v == nil {
		return invalid("spec.provider.vault is missing: Terrier serves no other provider")
	}
	refused := map[string]bool{
		"spec.provider.vault.forwardInconsistent":          v.ForwardInconsistent,
		"spec.provider.vault.version " + quoted(v.Version): !slices.Contains([]string{"", "v1", "v2"}, v.Version),
		"spec.conditions of a SecretStore":                 namespace != "" && len(s.Conditions) > 0,
	}
	maps.DeleteFunc(refused, func(_ string, is bool) bool { return !is })
	if len(refused) > 0 {
		return Unsupported(slices.Collect(maps.Keys(refused))...)
	}
	u, err := url.Parse(v.Server)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid("spec.provider.vault.server %.200q is not the address of a Vault: write https://HOST:PORT", v.Server)
	}
	if u.Scheme == "http" && !plain {
		return invalid("spec.provider.vault.server %.200q is not encrypted: use https, or let the operator start Terrier with --allow-plain-http", v.Server)
	}
	if c := v.CAProvider; c != nil {
		if c.Type != "Secret" && c.Type != "ConfigMap" || c.Name == "" || c.Key == "" {
			return invalid("spec.provider.vault.caProvider names no key of a Secret or a ConfigMap: set its type, name and key")
		}
		if err := outside(namespace, c.Namespace, "the "+c.Type+" "+c.Name); err != nil {
			return err
		}
	}
	return v.Auth.check(namespace)
}

// check reports what is wrong with an Auth.
func (a Auth) check(namespace string) error {
	const at = "spec.provider.vault.auth"
	var set []string
	var refs []KeyRef
	var accounts []AccountRef
	var err error
	if k := a.Kubernetes; k != nil {
		set = append(set, "kubernetes")
		switch {
		case k.Role == "":
			err = invalid("%s.kubernetes.role is empty: name a role of the method", at)
		case (k.ServiceAccountRef == nil) == (k.SecretRef == nil):
			err = invalid("%s.kubernetes: set serviceAccountRef or secretRef: Terrier signs in to no store as itself", at)
		}
		if k.ServiceAccountRef != nil {
			accounts = append(accounts, *k.ServiceAccountRef)
		}
		if k.SecretRef != nil {
			refs = append(refs, *k.SecretRef)
		}
	}
	if j := a.JWT; j != nil {
		set = append(set, "jwt")
		if (j.SecretRef == nil) == (j.AccountToken == nil) {
			err = invalid("%s.jwt: set secretRef or kubernetesServiceAccountToken", at)
		}
		if j.AccountToken != nil {
			accounts = append(accounts, j.AccountToken.ServiceAccountRef)
		}
		if j.SecretRef != nil {
			refs = append(refs, *j.SecretRef)
		}
	}
	if r := a.AppRole; r != nil {
		set = append(set, "appRole")
		switch {
		case (r.RoleID == "") == (r.RoleRef == nil):
			err = invalid("%s.appRole: set roleId or roleRef", at)
		case r.SecretRef == nil:
			err = invalid("%s.appRole.secretRef is missing: name the Secret with the secret ID", at)
		}
		for _, ref := range []*KeyRef{r.RoleRef, r.SecretRef} {
			if ref != nil {
				refs = append(refs, *ref)
			}
		}
	}
	if a.TokenSecretRef != nil {
		set = append(set, "tokenSecretRef")
		refs = append(refs, *a.TokenSecretRef)
	}
	switch {
	case len(set) == 0:
		return invalid("%s is empty: set kubernetes, jwt, appRole or tokenSecretRef", at)
	case len(set) > 1:
		return invalid("%s has %s: set one of them", at, strings.Join(set, " and "))
	case err != nil:
		return err
	}
	for _, ref := range refs {
		if ref.Name == "" {
			return invalid("%s.%s names no Secret", at, set[0])
		}
		if err := outside(namespace, ref.Namespace, "the Secret "+ref.Name); err != nil {
			return err
		}
	}
	for _, ref := range accounts {
		if ref.Name == "" {
			return invalid("%s.%s names no ServiceAccount", at, set[0])
		}
		if err := outside(namespace, ref.Namespace, "the ServiceAccount "+ref.Name); err != nil {
			return err
		}
	}
	return nil
}

// outside refuses another namespace in a store that has one of its own.
func outside(own, namespace, what string) error {
	if own != "" && namespace != "" && namespace != own {
		return invalid("%s is in the namespace %.80q by this reference, and a SecretStore uses its own namespace: remove the field namespace, or write a ClusterSecretStore", what, namespace)
	}
	return nil
}

// Uses reports that a namespace may not use the store, if it may not. The function selects
// says whether the labels of the namespace match a selector. Expressions match a part of
// the name, as with External Secrets Operator.
func (s StoreSpec) Uses(namespace string, selects func(Selector) (bool, error)) error {
	for i, c := range s.Conditions {
		ok := slices.Contains(c.Namespaces, namespace)
		for _, pattern := range c.NamespaceRegexes {
			compiled, err := regexp.Compile(pattern)
			if err != nil {
				return invalid("spec.conditions[%d].namespaceRegexes has %.80q, which is no regular expression: correct it", i, pattern)
			}
			ok = ok || compiled.MatchString(namespace)
		}
		if c.NamespaceSelector != nil {
			selected, err := selects(*c.NamespaceSelector)
			if err != nil {
				return fmt.Errorf("spec.conditions[%d].namespaceSelector: %w", i, err)
			}
			ok = ok || selected
		}
		if ok {
			return nil
		}
	}
	if len(s.Conditions) == 0 {
		return nil
	}
	return fault.New(fault.Denied, ReasonStore, fmt.Errorf("its spec.conditions do not have the namespace %s: let its owner add it, or use another store", namespace))
}

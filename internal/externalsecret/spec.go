// Package externalsecret decides what an ExternalSecret of external-secrets.io makes of
// secrets of OpenBao or Vault: which of them are read, what the Secret then holds, and
// whether it is written, kept or deleted.
//
// It serves a part of that API, and refuses by name what it does not serve. It reads
// nothing, writes nothing, and puts no value into a message.
//
// Start reading at Decide; Spec and StoreSpec are what users write.
package externalsecret

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// Group is the API group of the objects.
const Group = "external-secrets.io"

// The reasons of conditions.
const (
	ReasonSynced      = "SecretSynced"
	ReasonDeleted     = "SecretDeleted"
	ReasonUnsupported = "FieldNotSupported" // a field or a value that is not served
	ReasonInvalid     = "SpecInvalid"
	ReasonStore       = "StoreNotUsable"
	ReasonNotOwned    = "SecretNotOwned" // the target is another's
	ReasonNoTarget    = "SecretMissing"  // a target to merge into that is not there
	ReasonGone        = "VaultSecretGone"
	ReasonTemplate    = "TemplateFailed"
	ReasonLeases      = "LeasesWaiting"    // former credentials are not revoked yet
	ReasonRecords     = "RecordsNotUsable" // which credentials the Secret has is not known
)

// CreationPolicy says to whom the Secret belongs.
type CreationPolicy string

// The values of spec.target.creationPolicy.
const (
	Owner  CreationPolicy = "Owner"  // to the object: it goes with it
	Orphan CreationPolicy = "Orphan" // to nothing: it stays when the object is deleted
	Merge  CreationPolicy = "Merge"  // to another: keys are added
	None   CreationPolicy = "None"   // no Secret is written
)

// DeletionPolicy says what follows if a secret is not in Vault any more.
type DeletionPolicy string

// The values of spec.target.deletionPolicy.
const (
	Retain     DeletionPolicy = "Retain" // the Secret stays as it is
	Delete     DeletionPolicy = "Delete" // the Secret is deleted if nothing of it is left
	RemoveKeys DeletionPolicy = "Merge"  // its keys are removed, and the Secret stays
)

// RefreshPolicy says when secrets are read again.
type RefreshPolicy string

// The values of spec.refreshPolicy.
const (
	Periodic    RefreshPolicy = "Periodic"
	OnChange    RefreshPolicy = "OnChange"
	CreatedOnce RefreshPolicy = "CreatedOnce"
)

// DefaultInterval is spec.refreshInterval of an object that has none.
const DefaultInterval = time.Hour

// Spec is that of an ExternalSecret, as far as it is served.
type Spec struct {
	SecretStoreRef  StoreRef      `json:"secretStoreRef"`
	Target          Target        `json:"target"`
	RefreshPolicy   RefreshPolicy `json:"refreshPolicy"`
	RefreshInterval string        `json:"refreshInterval"`
	Data            []Data        `json:"data"`
	DataFrom        []DataFrom    `json:"dataFrom"`
}

// StoreRef names a store.
type StoreRef struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// The kinds of stores.
const (
	SecretStore        = "SecretStore"
	ClusterSecretStore = "ClusterSecretStore"
)

// Target is the Secret that is written.
type Target struct {
	Name           string         `json:"name"`
	CreationPolicy CreationPolicy `json:"creationPolicy"`
	DeletionPolicy DeletionPolicy `json:"deletionPolicy"`
	Immutable      bool           `json:"immutable"`
	Template       *Template      `json:"template"`
}

// Template shapes the Secret.
type Template struct {
	Type          string            `json:"type"`
	EngineVersion string            `json:"engineVersion"`
	MergePolicy   string            `json:"mergePolicy"`
	Metadata      TemplateMetadata  `json:"metadata"`
	Data          map[string]string `json:"data"`
}

// TemplateMetadata is that of the Secret.
type TemplateMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Data is one key of the Secret.
type Data struct {
	SecretKey string    `json:"secretKey"`
	RemoteRef RemoteRef `json:"remoteRef"`
}

// DataFrom is all keys of one secret of Vault.
type DataFrom struct {
	Extract *RemoteRef `json:"extract"`
}

// RemoteRef names a secret of Vault, or a part of it.
type RemoteRef struct {
	Key                string `json:"key"`
	Property           string `json:"property"`
	Version            string `json:"version"`
	ConversionStrategy string `json:"conversionStrategy"`
	DecodingStrategy   string `json:"decodingStrategy"`
	MetadataPolicy     string `json:"metadataPolicy"`
	NullBytePolicy     string `json:"nullBytePolicy"`
}

// invalid is an error of what a user wrote.
func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, ReasonInvalid, fmt.Errorf(format, args...))
}

// Unsupported is the error about fields that are not served.
func Unsupported(fields ...string) error {
	slices.Sort(fields)
	return fault.New(fault.Invalid, ReasonUnsupported, fmt.Errorf("%s: Terrier does not support this: remove it, or install External Secrets Operator and start Terrier without --external-secrets", strings.Join(fields, ", ")))
}

// Check fills in what is left out, and reports what is wrong or not served. Name is that of
// the object.
func (s *Spec) Check(name string) error {
	s.SecretStoreRef.Kind = cmp.Or(s.SecretStoreRef.Kind, SecretStore)
	s.Target.Name = cmp.Or(s.Target.Name, name)
	s.Target.CreationPolicy = cmp.Or(s.Target.CreationPolicy, Owner)
	s.Target.DeletionPolicy = cmp.Or(s.Target.DeletionPolicy, Retain)
	s.RefreshPolicy = cmp.Or(s.RefreshPolicy, Periodic)
	s.RefreshInterval = cmp.Or(s.RefreshInterval, DefaultInterval.String())
	refused := map[string]bool{
		"spec.target.immutable": s.Target.Immutable,
		"spec.target.creationPolicy " + quoted(s.Target.CreationPolicy): !slices.Contains([]CreationPolicy{Owner, Orphan, Merge, None}, s.Target.CreationPolicy),
		"spec.target.deletionPolicy " + quoted(s.Target.DeletionPolicy): !slices.Contains([]DeletionPolicy{Retain, Delete, RemoveKeys}, s.Target.DeletionPolicy),
		"spec.refreshPolicy " + quoted(s.RefreshPolicy):                 !slices.Contains([]RefreshPolicy{Periodic, OnChange, CreatedOnce}, s.RefreshPolicy),
		"spec.secretStoreRef.kind " + quoted(s.SecretStoreRef.Kind):     s.SecretStoreRef.Kind != SecretStore && s.SecretStoreRef.Kind != ClusterSecretStore,
	}
	for i, d := range s.Data {
		d.RemoteRef.refused(fmt.Sprintf("spec.data[%d].remoteRef.", i), refused)
	}
	for i, d := range s.DataFrom {
		if d.Extract != nil {
			d.Extract.refused(fmt.Sprintf("spec.dataFrom[%d].extract.", i), refused)
		}
	}
	s.Target.Template.refused(refused)
	maps.DeleteFunc(refused, func(_ string, is bool) bool { return !is })
	if len(refused) > 0 {
		return Unsupported(slices.Collect(maps.Keys(refused))...)
	}
	return errors.Join(s.checkNames(), s.checkPolicies(), s.Target.Template.check())
}

func quoted[T ~string](v T) string { return fmt.Sprintf("%.40q", string(v)) }

func (r RemoteRef) refused(at string, refused map[string]bool) {
	for field, value := range map[string]struct {
		has     string
		allowed []string
	}{
		"conversionStrategy": {r.ConversionStrategy, []string{"", "Default", "Unicode"}},
		"decodingStrategy":   {r.DecodingStrategy, []string{"", "None", "Base64", "Base64URL", "Auto"}},
		"metadataPolicy":     {r.MetadataPolicy, []string{"", "None"}},
		"nullBytePolicy":     {r.NullBytePolicy, []string{"", "Ignore"}},
	} {
		refused[at+field+" "+quoted(value.has)] = !slices.Contains(value.allowed, value.has)
	}
}

func (t *Template) refused(refused map[string]bool) {
	if t == nil {
		return
	}
	refused["spec.target.template.engineVersion "+quoted(t.EngineVersion)] = t.EngineVersion != "" && t.EngineVersion != "v2"
	refused["spec.target.template.mergePolicy "+quoted(t.MergePolicy)] = !slices.Contains([]string{"", "Replace", "Merge"}, t.MergePolicy)
}

// ownNames begin the names of Secrets that Terrier reads and trusts: states, plans, rows of
// tenants, and keys.
var ownNames = []string{"tfstate-", "tfplan-", "terrier-"}

func (s Spec) checkNames() error {
	switch {
	case slices.ContainsFunc(ownNames, func(prefix string) bool { return strings.HasPrefix(s.Target.Name, prefix) }):
		return invalid("spec.target.name %.80q is the name of a Secret that Terrier keeps for itself: name another one", s.Target.Name)
	case s.SecretStoreRef.Name == "":
		return invalid("spec.secretStoreRef.name is empty: name a %s", s.SecretStoreRef.Kind)
	case len(s.Data)+len(s.DataFrom) == 0:
		return invalid("the object names no secret: set spec.data or spec.dataFrom")
	}
	for i, d := range s.Data {
		if !isKey(d.SecretKey) {
			return invalid("spec.data[%d].secretKey %.80q is no key of a Secret: use letters, digits, ., - and _", i, d.SecretKey)
		}
		if err := d.RemoteRef.check(fmt.Sprintf("spec.data[%d].remoteRef", i)); err != nil {
			return err
		}
	}
	for i, d := range s.DataFrom {
		at := fmt.Sprintf("spec.dataFrom[%d].extract", i)
		if d.Extract == nil {
			return invalid("%s is missing: name a secret", at)
		}
		if err := d.Extract.check(at); err != nil {
			return err
		}
	}
	return nil
}

func (r RemoteRef) check(at string) error {
	if r.Key == "" {
		return invalid("%s.key is empty: name a secret of Vault", at)
	}
	_, err := r.version()
	if err != nil {
		return invalid("%s.version %w", at, err)
	}
	return nil
}

// version is the number of the version; 0 is the newest.
func (r RemoteRef) version() (int, error) {
	if r.Version == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(r.Version)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%.40q is no version of a key/value store: write a number from 1 on", r.Version)
	}
	return n, nil
}

func (s Spec) checkPolicies() error {
	t := s.Target
	switch {
	case t.DeletionPolicy == Delete && t.CreationPolicy != Owner && t.CreationPolicy != Orphan:
		return invalid("spec.target.deletionPolicy is Delete, and with the creationPolicy %s the Secret is not the object's to delete: use Retain or Merge", t.CreationPolicy)
	case t.DeletionPolicy == RemoveKeys && t.CreationPolicy == None:
		return invalid("spec.target.deletionPolicy is Merge, and with the creationPolicy None no Secret is written: use Retain")
	case t.Template != nil && t.CreationPolicy == Merge && (t.Template.Type != "" || len(t.Template.Metadata.Labels)+len(t.Template.Metadata.Annotations) > 0):
		return invalid("spec.target.template has a type or metadata, and with the creationPolicy Merge the Secret is another's: remove them")
	}
	_, err := s.Interval()
	return err
}

// Interval is how often secrets are read again; 0 is never.
func (s Spec) Interval() (time.Duration, error) {
	d, err := time.ParseDuration(s.RefreshInterval)
	if err != nil || d < 0 {
		return 0, invalid("spec.refreshInterval %.40q is no duration: write 10m, or 0 to read the secrets once", s.RefreshInterval)
	}
	return d, nil
}

// guarded are types of Secrets that another controller of the cluster fills in or trusts.
var guarded = []string{"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}

func (t *Template) check() error {
	if t == nil {
		return nil
	}
	if slices.Contains(guarded, t.Type) {
		return invalid("spec.target.template.type is %s: Terrier writes no Secrets of this type, since the cluster trusts them", t.Type)
	}
	for _, names := range []map[string]string{t.Metadata.Labels, t.Metadata.Annotations} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if prefix, _, ok := strings.Cut(name, "/"); ok && (prefix == "terrier.dev" || strings.HasSuffix(prefix, ".terrier.dev")) {
				return invalid("spec.target.template.metadata has %.80q, which Terrier writes itself: remove it", name)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Data)) {
		if !isKey(key) {
			return invalid("spec.target.template.data has %.80q, which is no key of a Secret: use letters, digits, ., - and _", key)
		}
		if _, err := rendering.Parse(t.Data[key]); err != nil {
			return invalid("spec.target.template.data[%s]: %w", key, err)
		}
	}
	return nil
}

// isKey reports whether a Secret can have a key.
func isKey(key string) bool {
	return key != "" && len(key) <= 253 && key != "." && key != ".." && !strings.ContainsFunc(key, func(r rune) bool { return !keyRune(r) })
}

func keyRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
}

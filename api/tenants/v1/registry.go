package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantRegistry is a table whose rows are tenants.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tenantregistries,singular=tenantregistry
// +kubebuilder:printcolumn:name="Templates",type="integer",JSONPath=".status.referencingTemplates"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".status.desired"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.ready"
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.failed"
// +kubebuilder:printcolumn:name="Conditions",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].reason"
// +kubebuilder:printcolumn:name="Blocked",type="integer",JSONPath=".status.blocked.count",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type TenantRegistry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantRegistrySpec   `json:"spec,omitempty"`
	Status TenantRegistryStatus `json:"status,omitzero"`
}

// TenantRegistryList is a list of TenantRegistry objects.
//
// +kubebuilder:object:root=true
type TenantRegistryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantRegistry `json:"items"`
}

// TenantRegistrySpec says where rows are and what their columns mean.
type TenantRegistrySpec struct {
	Source Source `json:"source"`

	ValueMappings ValueMappings `json:"valueMappings"`

	// More variables for templates, by the column that they come from.
	// +optional
	ExtraValueMappings map[string]string `json:"extraValueMappings,omitempty"`

	// Values of the activate column that mean yes, exactly as they are compared;
	// 1, true, TRUE, True, yes, YES and Yes if absent.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	ActiveValues []string `json:"activeValues,omitempty"`

	// True reads nothing and changes nothing.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// True reads and reports what would change, and changes nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// What has to hold before a tenant is taken away.
	// +optional
	Guard Guard `json:"guard,omitzero"`
}

// Guard limits what one read of the rows may take away. Whatever it says, an
// error, an incomplete read and a vanished column take away nothing.
type Guard struct {
	// True lets a read without any row take away every tenant.
	// +optional
	AllowEmpty bool `json:"allowEmpty,omitempty"`

	// A read that takes away more than this share, in percent, and more than
	// maxDeletions is stopped as a whole until somebody allows it.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxDeletionPercent *int32 `json:"maxDeletionPercent,omitempty"`

	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxDeletions *int32 `json:"maxDeletions,omitempty"`

	// How long a row must be inactive before its tenants go; at once if absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`

	// What becomes of the tenants of a row that is not there any more, which is
	// not the same as one that is inactive: Keep leaves them and says so, Delete
	// takes them away once the row was absent from two reads and for gracePeriod.
	// +kubebuilder:validation:Enum=Keep;Delete
	// +kubebuilder:default=Delete
	// +optional
	VanishedRows string `json:"vanishedRows,omitempty"`
}

// Source is one database.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'mysql' || has(self.mysql)",message="mysql is required for type mysql"
// +kubebuilder:validation:XValidation:rule="self.type != 'postgresql' || has(self.postgresql)",message="postgresql is required for type postgresql"
// +kubebuilder:validation:XValidation:rule="self.type != 'sqlite' || has(self.sqlite)",message="sqlite is required for type sqlite"
type Source struct {
	// +kubebuilder:validation:Enum=mysql;postgresql;sqlite
	Type string `json:"type"`

	// Pause between reads.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Pattern=`^[0-9]+(s|m|h)$`
	// +kubebuilder:validation:MaxLength=16
	SyncInterval string `json:"syncInterval,omitempty"`

	// MySQL or MariaDB.
	// +optional
	MySQL *Server `json:"mysql,omitempty"`

	// +optional
	PostgreSQL *PostgreSQL `json:"postgresql,omitempty"`

	// A file on the controller's machine; only below the directories that it was told.
	// +optional
	SQLite *SQLite `json:"sqlite,omitempty"`

	// How long connecting and reading may take; 30s if absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// More rows than this are an error; 100000 if absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxRows *int32 `json:"maxRows,omitempty"`

	// A column that never goes back in newer data, such as an updated_at: a read
	// whose greatest value is less than that of an earlier one is an older copy,
	// and changes nothing.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	HighWaterMark string `json:"highWaterMark,omitempty"`
}

// Server is where a database listens, and what to read there.
type Server struct {
	// A name or an address, or an absolute path of a socket.
	// +kubebuilder:validation:MinLength=1
	Host string `json:"host"`

	// +kubebuilder:default=3306
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	Username string `json:"username"`

	// +optional
	PasswordRef *SecretRef `json:"passwordRef,omitempty"`

	Database string `json:"database"`

	Selection `json:",inline"`

	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// PostgreSQL is a Server with another port.
type PostgreSQL struct {
	// A name or an address, or an absolute path of a directory with sockets.
	// +kubebuilder:validation:MinLength=1
	Host string `json:"host"`

	// +kubebuilder:default=5432
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	Username string `json:"username"`

	// +optional
	PasswordRef *SecretRef `json:"passwordRef,omitempty"`

	Database string `json:"database"`

	Selection `json:",inline"`

	// +optional
	TLS *TLS `json:"tls,omitempty"`

	// Reads again when this channel is notified (NOTIFY); polling goes on beside it.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Channel string `json:"channel,omitempty"`
}

// SQLite is a database in a file.
type SQLite struct {
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`

	Selection `json:",inline"`
}

// Selection is what is read.
//
// +kubebuilder:validation:XValidation:rule="has(self.table) != has(self.query)",message="give table or query, not both"
type Selection struct {
	// A table or view: a name, or a schema and a name with a dot between.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Table string `json:"table,omitempty"`

	// One SELECT statement, for what no table or view has.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Query string `json:"query,omitempty"`
}

// SecretRef names a key of a Secret in the object's own namespace.
type SecretRef struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// TLS says how a connection is protected. With it a server's certificate is
// always verified.
type TLS struct {
	// Certificates of authorities, PEM; those of the system if absent.
	// +optional
	CARef *SecretRef `json:"caRef,omitempty"`

	// Certificate and key of the client, PEM.
	// +optional
	CertRef *SecretRef `json:"certRef,omitempty"`
	// +optional
	KeyRef *SecretRef `json:"keyRef,omitempty"`

	// The name in the server's certificate; host if empty.
	// +optional
	ServerName string `json:"serverName,omitempty"`
}

// ValueMappings are the columns of the variables that each row has.
type ValueMappings struct {
	// Identifies a tenant for good; becomes part of names.
	// +kubebuilder:validation:MinLength=1
	UID string `json:"uid"`

	// A URL or host name, known to templates as hostOrUrl and host.
	// +optional
	HostOrURL string `json:"hostOrUrl,omitempty"`

	// Whether the tenant is to be there.
	// +kubebuilder:validation:MinLength=1
	Activate string `json:"activate"`
}

// TenantRegistryStatus is what is known of the rows and their tenants. Counters
// keep their last value while the database cannot be read.
type TenantRegistryStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	ReferencingTemplates int32 `json:"referencingTemplates,omitempty"`
	// Templates times active rows.
	// +optional
	Desired int32 `json:"desired,omitempty"`
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Tenants of which a resource failed; one that is starting is none.
	// +optional
	Failed int32 `json:"failed,omitempty"`

	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The last complete read that found something else than the one before it.
	// +optional
	LastRead *Read `json:"lastRead,omitempty"`

	// Rows that no tenant can be made of; the first twenty.
	// +optional
	RowErrors []RowError `json:"rowErrors,omitempty"`
	// All of them.
	// +optional
	RowErrorCount int32 `json:"rowErrorCount,omitempty"`

	// Deletions that a guard has stopped.
	// +optional
	Blocked *Blocked `json:"blocked,omitempty"`

	// Tenants that will go when their grace period is over.
	// +optional
	Leaving int32 `json:"leaving,omitempty"`

	// What a dry run would have done.
	// +optional
	DryRun *Changes `json:"dryRun,omitempty"`

	// Tenants that went lately because their rows became inactive; one whose row
	// flaps has to be inactive for longer.
	// +optional
	Departed []Departure `json:"departed,omitempty"`

	// The value of the annotation terrier.dev/sync that was acted on last.
	// +optional
	LastHandledSync string `json:"lastHandledSync,omitempty"`
}

// Read is one complete look at the rows.
type Read struct {
	Time metav1.Time `json:"time"`
	// Rows in all, and those that are active.
	Rows   int32 `json:"rows"`
	Active int32 `json:"active"`
	// The greatest value of the highWaterMark column.
	// +optional
	HighWaterMark string `json:"highWaterMark,omitempty"`
}

// RowError is a row that no tenant can be made of.
type RowError struct {
	// The uid as it is in the row, shortened; empty if it has none.
	// +optional
	UID     string `json:"uid,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`

	// When what the API server refused is tried again by itself. A change of the
	// row or of the template has it tried at once.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`
}

// Blocked is a set of deletions that waits for somebody to allow it.
type Blocked struct {
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Since   metav1.Time `json:"since"`
	Count   int32       `json:"count"`
	// The first twenty.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
	// Stands for exactly these deletions: as value of the annotation
	// terrier.dev/allow-deletions it lets them pass.
	// +optional
	Token string `json:"token,omitempty"`
}

// Changes counts what a read leads to.
type Changes struct {
	Create int32 `json:"create"`
	Update int32 `json:"update"`
	Delete int32 `json:"delete"`
	// The first twenty, each with a +, ~ or - before it.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
}

// Departure is a row that became inactive and whose tenants went.
type Departure struct {
	UID   string      `json:"uid"`
	Time  metav1.Time `json:"time"`
	Count int32       `json:"count"`
}

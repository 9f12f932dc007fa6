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

// TenantRegistrySpec gives the source of rows and the meanings of their columns.
//
// +kubebuilder:validation:XValidation:rule="self.source.type == 'inventory' || has(self.valueMappings)",message="valueMappings is required for every source.type but inventory"
type TenantRegistrySpec struct {
	Source Source `json:"source"`

	// Required for databases. An inventory has the columns uid and activate by itself.
	// +optional
	ValueMappings ValueMappings `json:"valueMappings,omitzero"`

	// More variables for templates, by their columns.
	// +optional
	ExtraValueMappings map[string]string `json:"extraValueMappings,omitempty"`

	// Values of the activate column that mean true, compared exactly; 1, true, TRUE,
	// True, yes, YES and Yes if absent.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	ActiveValues []string `json:"activeValues,omitempty"`

	// True stops reading rows and changing tenants.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// True reports what would change, and changes nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Limits of deletions.
	// +optional
	Guard Guard `json:"guard,omitzero"`
}

// Guard limits the deletions of one read of the rows. An error, an incomplete read
// and a missing column never delete a tenant.
type Guard struct {
	// True allows a read without any row to delete all tenants.
	// +optional
	AllowEmpty bool `json:"allowEmpty,omitempty"`

	// The guard blocks all deletions of a read that would delete more than this share,
	// in percent, and more than maxDeletions, until a user allows them.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxDeletionPercent *int32 `json:"maxDeletionPercent,omitempty"`

	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxDeletions *int32 `json:"maxDeletions,omitempty"`

	// How long a row must be inactive or missing before its tenants are deleted: an
	// unlucky read must not destroy a tenant and create it again. With 0s an inactive
	// row deletes them at once, and a missing one after the second read.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="string(duration(self)) != ''",message="must be a duration such as 90s or 1h30m"
	// +optional
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`

	// The fate of tenants whose row is missing, and not merely inactive: Keep keeps and
	// reports them, Delete deletes them once the row was missing from two reads, and
	// for gracePeriod.
	// +kubebuilder:validation:Enum=Keep;Delete
	// +kubebuilder:default=Delete
	// +optional
	VanishedRows string `json:"vanishedRows,omitempty"`
}

// Source is one database, or the directories of an inventory.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'mysql' || has(self.mysql)",message="mysql is required for type mysql"
// +kubebuilder:validation:XValidation:rule="self.type != 'postgresql' || has(self.postgresql)",message="postgresql is required for type postgresql"
// +kubebuilder:validation:XValidation:rule="self.type != 'sqlite' || has(self.sqlite)",message="sqlite is required for type sqlite"
// +kubebuilder:validation:XValidation:rule="self.type != 'inventory' || has(self.inventory)",message="inventory is required for type inventory"
type Source struct {
	// +kubebuilder:validation:Enum=mysql;postgresql;sqlite;inventory
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

	// A file on the controller's machine, in one of the directories that the operator allows.
	// +optional
	SQLite *SQLite `json:"sqlite,omitempty"`

	// Directories of tenants in the artifact of a source.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

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

	// A column that only grows, such as updated_at: a read whose greatest value is less
	// than that of an earlier one has older data, and changes nothing.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	HighWaterMark string `json:"highWaterMark,omitempty"`
}

// Server is the address of a database, and what to read there.
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

	// Terrier also reads the rows when this channel is notified (NOTIFY).
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

// Inventory is a directory with one directory for each tenant: hosts.yml, group_vars,
// host_vars, and terraform with the root module of its stack.
type Inventory struct {
	SourceRef InventorySource `json:"sourceRef"`

	// The directory in the artifact that has the directories of the tenants.
	// +kubebuilder:default="tenant-inventory"
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Path string `json:"path,omitempty"`

	// The variables of Ansible that stacks may get. No other leaves the inventory.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +listMapKey=group
	// +optional
	Variables []InventoryVariable `json:"variables,omitempty"`
}

// InventorySource names a source in the namespace of the registry.
type InventorySource struct {
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;Bucket
	Kind string `json:"kind"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// InventoryVariable is a variable of Ansible that stacks may get.
type InventoryVariable struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// The name of the variable of the module; name if absent.
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_-]*$`
	// +kubebuilder:validation:MaxLength=128
	// +optional
	As string `json:"as,omitempty"`

	// What the value must be; it is never converted. A number in quotes is a string.
	// +kubebuilder:validation:Enum=string;number;bool;list;map;any
	// +kubebuilder:default=any
	// +optional
	Type string `json:"type,omitempty"`

	// True makes a tenant without the variable an invalid row.
	// +optional
	Required bool `json:"required,omitempty"`

	// The group of Ansible whose value counts.
	// +kubebuilder:default=all
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Group string `json:"group,omitempty"`
}

// Selection is the table or query to read.
//
// +kubebuilder:validation:XValidation:rule="has(self.table) != has(self.query)",message="give table or query, not both"
type Selection struct {
	// A table or view: a name, or a schema and a name with a dot between.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Table string `json:"table,omitempty"`

	// One SELECT statement instead of a table or view.
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

// TLS protects a connection. The server's certificate is always verified.
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

// ValueMappings are the columns of the variables of each row.
type ValueMappings struct {
	// Identifies a tenant, and never changes; part of names.
	// +kubebuilder:validation:MinLength=1
	UID string `json:"uid"`

	// A URL or host name, known to templates as hostOrUrl and host.
	// +optional
	HostOrURL string `json:"hostOrUrl,omitempty"`

	// Whether the tenant is active.
	// +kubebuilder:validation:MinLength=1
	Activate string `json:"activate"`
}

// TenantRegistryStatus is the status of the rows and their tenants. Counters keep
// their last value while the database cannot be read.
type TenantRegistryStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	ReferencingTemplates int32 `json:"referencingTemplates,omitempty"`
	// The tenants that should exist: one for each template and active row, and those
	// of kept. Leaving ones do not count.
	// +optional
	Desired int32 `json:"desired,omitempty"`
	// Of the desired tenants, those that stay although no valid and active row asks for
	// them: their row has an error, or a guard, deletion protection or vanishedRows
	// keeps them.
	// +optional
	Kept int32 `json:"kept,omitempty"`
	// Of the desired tenants, those that are ready.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Of the desired tenants, those with a failed resource; one that is starting does
	// not count.
	// +optional
	Failed int32 `json:"failed,omitempty"`

	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The last complete read with another result than the one before.
	// +optional
	LastRead *Read `json:"lastRead,omitempty"`

	// Rows with errors; the first twenty.
	// +optional
	RowErrors []RowError `json:"rowErrors,omitempty"`
	// The number of rows with errors.
	// +optional
	RowErrorCount int32 `json:"rowErrorCount,omitempty"`

	// What users should know of rows that are valid; the first twenty.
	// +optional
	RowWarnings []RowWarning `json:"rowWarnings,omitempty"`
	// The number of these.
	// +optional
	RowWarningCount int32 `json:"rowWarningCount,omitempty"`

	// Deletions that a guard blocks.
	// +optional
	Blocked *Blocked `json:"blocked,omitempty"`

	// Tenants that will be deleted after their grace period.
	// +optional
	Leaving int32 `json:"leaving,omitempty"`

	// The changes that a dry run reports.
	// +optional
	DryRun *Changes `json:"dryRun,omitempty"`

	// Rows whose tenants were deleted lately; a row that flaps has to be inactive for
	// longer.
	// +optional
	Departed []Departure `json:"departed,omitempty"`

	// When the registry was last resumed, or left a dry run. A grace period that began
	// before that does not count.
	// +optional
	DeparturesFrom *metav1.Time `json:"departuresFrom,omitempty"`

	// The last value of the annotation terrier.dev/sync that was handled.
	// +optional
	LastHandledSync string `json:"lastHandledSync,omitempty"`
}

// Read is one complete read of the rows.
type Read struct {
	Time metav1.Time `json:"time"`
	// All rows, and the active ones.
	Rows   int32 `json:"rows"`
	Active int32 `json:"active"`
	// The greatest value of the highWaterMark column.
	// +optional
	HighWaterMark string `json:"highWaterMark,omitempty"`
}

// RowError is a row with an error.
type RowError struct {
	// The uid as it is in the row, shortened; empty if it has none.
	// +optional
	UID     string `json:"uid,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`

	// The time of the next attempt after a refusal by the API server. A change of the
	// row or of the template causes an attempt at once.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`
}

// RowWarning is what a user should know of a row.
type RowWarning struct {
	// +optional
	UID     string `json:"uid,omitempty"`
	Message string `json:"message"`
}

// Blocked is a set of deletions that a guard blocks until a user allows it.
type Blocked struct {
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Since   metav1.Time `json:"since"`
	Count   int32       `json:"count"`
	// The first twenty.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
	// As value of the annotation terrier.dev/allow-deletions the token allows exactly
	// these deletions.
	// +optional
	Token string `json:"token,omitempty"`
}

// Changes counts the changes of a read.
type Changes struct {
	Create int32 `json:"create"`
	Update int32 `json:"update"`
	Delete int32 `json:"delete"`
	// The first twenty, each with a +, ~ or - before it.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
}

// Departure is a row whose tenants were deleted.
type Departure struct {
	UID   string      `json:"uid"`
	Time  metav1.Time `json:"time"`
	Count int32       `json:"count"`
}

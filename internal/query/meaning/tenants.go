package meaning

import (
	"slices"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// OfTenant explains a reason of a registry, a template, a tenant or one of
// its objects; the zero Situation of an unknown one.
func OfTenant(reason string) Situation {
	for _, words := range tenantWords {
		if s, ok := words.Of[reason]; ok {
			return s
		}
	}
	return Situation{}
}

// Reasons are the reasons of one kind of thing.
type Reasons struct {
	What string
	Of   map[string]Situation
}

// TenantNew is the reason of a tenant that was not reconciled yet.
const TenantNew = "New"

// TenantReasons are all reasons of tenants, registries, rows and templates that are explained.
func TenantReasons() []Reasons { return slices.Clone(tenantWords) }

var tenantWords = []Reasons{
	{"A tenant", ofTenants},
	{"An object of a tenant", ofObjects},
	{"A registry", ofRegistries},
	{"A row", ofRows},
	{"A template", ofTemplates},
	{"A rollout", ofRollouts},
}

var ofTenants = map[string]Situation{
	TenantNew:                      {"The tenant was created, and Terrier has not reconciled it yet.", "Nothing, if it is new. Otherwise check that the controller runs."},
	"Reconciled":                   {"All objects exist and are ready.", ""},
	"NotAllResourcesReady":         {"Terrier is creating objects, or objects are not ready yet.", ""},
	"ResourcesFailed":              {"Terrier could not write some objects, or objects did not become ready in time.", "See which, and why, with terrier tenant NAME."},
	"ResourcesConflicted":          {"Objects, or some of their fields, have another owner.", "See which with terrier tenant NAME. Give them up there, or set conflictPolicy: Force if the template should win."},
	"ResourcesFailedAndConflicted": {"Some objects failed, and others have another owner.", "See which with terrier tenant NAME."},
	tenant.VariablesBuildError:     {"Terrier cannot read the row of the tenant.", "See the message. The next sync writes a missing Secret terrier-row-… again; annotations of a tenant that a user created have to be JSON."},
	tenant.DependencyError:         {"dependIds of the template name a missing resource, or form a cycle. Terrier touches no object.", "Correct the template: terrier render -f FILE finds it beforehand."},
	tenant.SortError:               {"The objects have no order of creation. Terrier touches no object.", "Correct dependIds of the template."},
	"Deleting":                     {"The tenant is being deleted: Terrier deletes its objects from the last to the first, each after its dependants.", ""},
	tenant.DeletionProtected:       {"The tenant is being deleted, and deletion protection keeps it.", "To delete it, remove the annotation terrier.dev/deletion-protection from the Tenant, or deletionProtection from its template."},
	"ReconcileFailed":              {"Passes over the object end early, so that its status does not change; the message has the error. Everything stays as it is.", "See the message. Terrier retries by itself; if it lasts, the log of the controller has each attempt."},
	"RowMissing":                   {"The Secret with the row of this tenant is missing.", "The next sync of the registry restores it: terrier rows REGISTRY --now."},
}

var ofObjects = map[string]Situation{
	tenant.Applying:             {"Terrier wrote the object, and it is not ready yet.", ""},
	tenant.NotReady:             {"The object exists, and is not ready yet.", ""},
	tenant.ApplyFailed:          {"Terrier could not write the object, and retries it.", "See the message. If the API server refuses the object, correct the template."},
	tenant.Forbidden:            {"The ServiceAccount of the template, or the controller, may not write this object.", "Give the ServiceAccount of the template (serviceAccountName), or the controller's, a role for it."},
	tenant.NamespaceNotAllowed:  {"The object belongs to another namespace, or to none, and the platform does not allow this template to write there.", "Leave targetNamespace out, name a serviceAccountName that may write there, or ask the operator for --tenant-namespaces."},
	tenant.KindUnknown:          {"The cluster does not have the kind of the object.", "Install its definition. Terrier finds it by itself."},
	tenant.DuplicateObject:      {"Two resources of the template are the same object.", "Give one of the two another name."},
	tenant.TemplateRenderError:  {"A text of the template cannot be rendered with this row; the message names the field.", "Correct the template or the row. terrier render TEMPLATE --uid UID shows the same."},
	tenant.ResourceConflict:     {"The object, or one of its fields, has another owner; the message names the owner.", "Give it up there, or set conflictPolicy: Force if the template should win. Terrier never takes an object of another tenant."},
	tenant.ResourceFailed:       {"The status of the object says that it has failed.", "See the object; of a stack: terrier explain STACK."},
	tenant.ReadinessTimeout:     {"The object did not become ready within timeoutSeconds. Terrier keeps watching it, and continues when it is ready.", "See the object, or increase timeoutSeconds."},
	tenant.DependencyNotReady:   {"A dependency is not ready yet, so the object is not created.", ""},
	tenant.DependencySkipped:    {"A dependency has failed, so the object is not created.", "Fix the dependency. With skipOnDependencyFailure: false the object is created all the same."},
	tenant.ProceedingDependency: {"A dependency has failed, and the object is created all the same, because of skipOnDependencyFailure: false.", ""},
	tenant.RemovedFromTemplate:  {"The template does not have this object any more.", ""},
	tenant.TenantDeleted:        {"The tenant is being deleted, and so is the object.", ""},
	tenant.BeingDeleted:         {"The object is being deleted. Terrier creates it again when it is gone.", ""},
	tenant.WaitsForDependents:   {"Terrier deletes the object after its dependants.", ""},
	tenant.WaitsForFinalizers:   {"The object is being deleted, and waits for its finalizers: a stack destroys its resources first.", "See the object; of a stack: terrier explain STACK."},
	tenant.CleanupFailed:        {"Terrier could not delete the object, and retries the deletion.", "See the message."},
	tenant.AccountInvalid:       {"serviceAccountName is no name that a ServiceAccount can have. Terrier touches no object.", "Correct spec.serviceAccountName of the template; of a Tenant that is being deleted, its own."},
	tenant.Unavailable:          {"The API server, or the aggregated API of the kind, does not answer. Terrier leaves the object as it is, retries it after increasing pauses, and goes on with the others.", "See the message, and kubectl get apiservices."},
	tenant.InventoryFull:        {"The list of the objects of the tenant, status.inventory, has no room for this object, so that Terrier does not create it: the Tenant would be larger than the API server stores.", "Split the template into several, or move long texts out of it."},
	tenant.CannotBeRead:         {"Terrier could not read the object, and leaves it as it is.", "See the message: mostly a role is missing."},
}

var ofRegistries = map[string]Situation{
	"DatabaseConnected":        {"The query returned the rows.", ""},
	"DatabaseConnectionFailed": {"Terrier could not read the rows. All tenants stay as they are.", "See the message. Terrier retries the read by itself, or at once with terrier rows REGISTRY --now."},
	"InventoryRead":            {"The directories of the tenants were read.", ""},
	"InventoryUnreadable":      {"Terrier could not read the directories of the tenants. All tenants stay as they are.", "See the message. Terrier retries the read by itself, with the next artifact of the source, and at once with terrier rows REGISTRY --now."},
	"Suspended":                {"The registry is suspended: Terrier reads no rows, and tenants stay as they are.", "Resume it with terrier resume tenantregistry/NAME."},
	"RowsValid":                {"All rows are valid.", ""},
	"RowErrors":                {"Some rows have errors. Their tenants, if there are any, stay as they are.", "Correct the rows that terrier rows REGISTRY shows."},
	"NothingBlocked":           {"No deletion is blocked.", ""},
	tenant.NoRows:              {"The query returned no rows, and a guard blocks the deletion of all tenants. An empty copy or a wrong view is more likely.", allowIt},
	tenant.EveryTenant:         {"A guard blocks these deletions: no tenant would be left.", allowIt},
	tenant.TooManyDeletions:    {"A guard blocks these deletions: they are more at once than the registry allows.", allowIt},
	tenant.RowsUnidentified:    {"Rows are missing, and rows without a uid could be the missing ones. A guard blocks the deletions.", "Give the rows their uids. Or, if the missing rows really are gone, " + lowerAllowIt},
	"OlderRead":                {"The database answered with older data than before, such as a replica that lags. Terrier ignores this read.", "Nothing, if the replica catches up. Otherwise check which database the registry reads."},
	"VanishedRowsKept":         {"Rows are missing, and vanishedRows: Keep keeps their tenants.", "Delete the Tenants that are not needed any more, or deactivate rows instead of deleting them."},
}

const (
	lowerAllowIt = "list the deletions with terrier rows REGISTRY, and allow exactly these with terrier rows REGISTRY --allow."
	allowIt      = "If the database is right, list the deletions with terrier rows REGISTRY, and allow exactly these with terrier rows REGISTRY --allow."
)

var ofRows = map[string]Situation{
	tenant.RowUIDMissing:     {"The uid is NULL or empty.", "Give the row a uid, or leave it out with a view."},
	tenant.RowUIDInvalid:     {"The uid cannot be a part of names of objects: lower-case letters, digits, hyphens and dots, with a letter or digit first and last.", "Change the uid, or map another column to uid."},
	tenant.RowUIDTooLong:     {"The uid is too long for a label.", "Use a shorter one."},
	tenant.RowUIDDuplicate:   {"Several rows have this uid. Terrier uses none of them.", "Make the uid unique, best with a unique index."},
	tenant.RowUIDsAlike:      {"Several rows have uids that differ only in case or spaces.", "Make them differ."},
	tenant.RowValueUnusable:  {"A value of this row is too large, no text, or, in an inventory, what the message says. Its tenants stay as they are.", "Fix the value. In a database, map another column, or shorten it in a view."},
	tenant.RowHostEmpty:      {"The hostOrUrl column is mapped, and empty in this row.", "Fill it in, or leave valueMappings.hostOrUrl out."},
	tenant.RowColumnMissing:  {"The query does not return a mapped column.", "Correct the mapping, or restore the column. Until then tenants stay as they are."},
	tenant.RowNameTooLong:    {"The name from uid and template is too long for an object.", "Use a shorter uid, or a shorter name of the template."},
	tenant.RowNameTaken:      {"A Tenant of this name exists, and belongs to another registry or to none.", "Delete it, rename the template, or change the uid."},
	"TenantRefused":          {"The API server refuses to write the Tenant of this row, or its Secret, or to delete it. Terrier retries after increasing pauses, and at once when the row or the template changes.", "See the message: mostly a quota, a policy or a webhook. To retry now: terrier rows REGISTRY --now."},
	tenant.RowTenantConflict: {"Two pairs of a uid and a template have the same name.", "Rename one of the templates."},
}

var ofTemplates = map[string]Situation{
	"ValidationPassed":   {"The template can be rendered.", ""},
	"ValidationFailed":   {"The template is not valid, and is not rolled out: tenants keep their generation.", "Correct the field that the message names: terrier render -f FILE finds the same."},
	"RegistryNotFound":   {"The registry of the template does not exist.", "Create it, in the namespace of the template."},
	"AllTenantsReady":    {"All tenants have this generation, and are ready.", ""},
	"NotAllTenantsReady": {"Not all tenants are ready with this generation.", "See which with terrier tenants --template NAME --not-ready."},
	"NoTenants":          {"No row is active.", ""},
}

var ofRollouts = map[string]Situation{
	"Rollout" + tenantsv1.RolloutIdle:       {"No rollout is running.", ""},
	"Rollout" + tenantsv1.RolloutInProgress: {"A rollout is running, within the limits of rollout of the template.", ""},
	"Rollout" + tenantsv1.RolloutComplete:   {"All tenants have the newest generation.", ""},
	"Rollout" + tenantsv1.RolloutFailed: {
		"Too many tenants failed, or did not become ready in time. No further tenant is changed; new rows get the last good generation.",
		"See which with terrier rollout status TEMPLATE. Correct the template; or resume with terrier rollout resume TEMPLATE; or roll back with terrier rollout undo TEMPLATE.",
	},
	"RolloutStopped": {"A rollout has stopped.", "See why with terrier rollout status TEMPLATE."},
}

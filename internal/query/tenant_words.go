package query

import (
	"slices"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// TenantSituation says what a reason of a registry, a template, a tenant or one
// of its objects means to whoever meets it; the zero Situation of one that is
// not ours.
func TenantSituation(reason string) Situation {
	for _, words := range tenantWords {
		if s, ok := words.Of[reason]; ok {
			return s
		}
	}
	return Situation{}
}

// TenantReasons are the reasons of one kind of thing.
type TenantReasons struct {
	What string
	Of   map[string]Situation
}

// AllTenantReasons are all reasons that are explained.
func AllTenantReasons() []TenantReasons { return slices.Clone(tenantWords) }

var tenantWords = []TenantReasons{
	{"A tenant", ofTenants},
	{"An object of a tenant", ofObjects},
	{"A registry", ofRegistries},
	{"A row", ofRows},
	{"A template", ofTemplates},
	{"A rollout", ofRollouts},
}

var ofTenants = map[string]Situation{
	TenantNew:                      {"The tenant is there, and nobody has looked at it yet.", "Nothing, if it is young. Otherwise see that the controller runs."},
	"Reconciled":                   {"Every object is there and ready.", ""},
	"NotAllResourcesReady":         {"Objects are being made, or are not ready yet.", ""},
	"ResourcesFailed":              {"Objects could not be written, or did not become ready in time.", "See which, and why, with terrier tenant NAME."},
	"ResourcesConflicted":          {"Objects, or fields of them, are somebody else's.", "See which with terrier tenant NAME. Let go of them there, or set conflictPolicy: Force if the template should win."},
	"ResourcesFailedAndConflicted": {"Some objects failed, and others are somebody else's.", "See which with terrier tenant NAME."},
	tenant.VariablesBuildError:     {"The row of the tenant cannot be read.", "See the message: a Secret terrier-row-… that is gone is written anew at the next sync; annotations of a tenant made by hand have to be JSON."},
	tenant.DependencyError:         {"dependIds of the template name what is not there, or form a circle. No object is touched.", "Correct the template: terrier render -f FILE finds it beforehand."},
	tenant.SortError:               {"No order of the objects can be found. No object is touched.", "Correct dependIds of the template."},
	"Deleting":                     {"The tenant goes: its objects are taken down from the last to the first, each when those that need it are gone.", ""},
	tenant.DeletionProtected:       {"The tenant is being deleted, and deletion protection keeps it.", "Take the annotation terrier.dev/deletion-protection off the Tenant, or deletionProtection out of its template, if it really is to go."},
	"RowMissing":                   {"The Secret with the row of this tenant is not there.", "It comes back with the next sync of the registry: terrier rows REGISTRY --now."},
}

var ofObjects = map[string]Situation{
	tenant.Applying:             {"The object was written, and is not ready yet.", ""},
	tenant.NotReady:             {"The object is there, and is not ready yet.", ""},
	tenant.ApplyFailed:          {"The object could not be written. It is tried again.", "See the message; what the API server refuses, the template has to say differently."},
	tenant.Forbidden:            {"Whoever writes for this template may not write this object.", "Give the ServiceAccount of the template (serviceAccountName), or the controller's, a role for it."},
	tenant.NamespaceNotAllowed:  {"The object belongs into another namespace, or into none, and the platform does not allow this template to write there.", "Leave targetNamespace out, name a serviceAccountName that may write there, or ask the operator for --tenant-namespaces."},
	tenant.KindUnknown:          {"The cluster does not know the kind of the object.", "Install its definition. It is found by itself."},
	tenant.DuplicateObject:      {"Two resources of the template make the same object.", "Give one of the two another name."},
	tenant.TemplateRenderError:  {"A text of the template cannot be made of this row; the message names the field.", "Correct the template or the row. terrier render TEMPLATE --uid UID shows the same."},
	tenant.ResourceConflict:     {"The object, or a field of it, is somebody else's; the message names whose.", "Let go of it there, or set conflictPolicy: Force if the template should win. An object of another tenant is never taken."},
	tenant.ResourceFailed:       {"The object says of itself that it has failed.", "See the object; of a stack: terrier explain STACK."},
	tenant.ReadinessTimeout:     {"The object did not become ready within timeoutSeconds. It is looked at further, and the tenant goes on when it does.", "See the object; or give it more timeoutSeconds."},
	tenant.DependencyNotReady:   {"What it depends on is not ready yet, so it is not made.", ""},
	tenant.DependencySkipped:    {"What it depends on has failed, so it is not made.", "Mend what it depends on. skipOnDependencyFailure: false makes it all the same."},
	tenant.ProceedingDependency: {"What it depends on has failed, and it is made all the same, as skipOnDependencyFailure: false says.", ""},
	tenant.RemovedFromTemplate:  {"The template does not have this object any more.", ""},
	tenant.TenantDeleted:        {"The tenant goes, and so does the object.", ""},
	tenant.BeingDeleted:         {"The object is on its way out, and will be made anew when it is gone.", ""},
	tenant.WaitsForDependents:   {"It goes when the objects that need it are gone.", ""},
	tenant.WaitsForFinalizers:   {"It was told to go, and waits for its own finalizers: a stack destroys what it built first.", "See the object; of a stack: terrier explain STACK."},
	tenant.CleanupFailed:        {"The object could not be taken away. It is tried again, and not forgotten.", "See the message."},
	tenant.CannotBeRead:         {"The object could not be looked at. It is left as it is.", "See the message: mostly a role that is missing."},
}

var ofRegistries = map[string]Situation{
	"DatabaseConnected":        {"The rows were read.", ""},
	"DatabaseConnectionFailed": {"The rows could not be read. Nothing is changed, and nothing is taken away.", "See the message. It is tried again by itself, or at once with terrier rows REGISTRY --now."},
	"Suspended":                {"The rows are not read, and tenants stay as they are.", "Resume it with terrier resume tenantregistry/NAME."},
	"RowsValid":                {"Every row is understood.", ""},
	"RowErrors":                {"No tenant can be made of some rows. Their tenants, if there are any, stay as they are.", "Correct the rows that terrier rows REGISTRY shows."},
	"NothingBlocked":           {"Nothing that rows ask for is held back.", ""},
	tenant.NoRows:              {"A complete read had no rows at all. That is rather an empty copy or a wrong view than the end of all tenants.", allowIt},
	tenant.EveryTenant:         {"No tenant would be left.", allowIt},
	tenant.TooManyDeletions:    {"More tenants would go at once than the guard of the registry lets pass.", allowIt},
	tenant.RowsUnidentified:    {"Rows are missing, and there are rows without a uid that could be those.", "Give the rows their uids. Or, if the others really are gone: " + lowerAllowIt},
	"OlderRead":                {"The database answered with older data than before, such as a copy that lags. Nothing is concluded from it.", "Nothing, if it catches up. Otherwise see where the registry reads."},
	"VanishedRowsKept":         {"Rows are gone, and vanishedRows: Keep keeps their tenants.", "Delete the Tenants that really are to go, or deactivate rows in place of deleting them."},
}

const (
	lowerAllowIt = "see which they are with terrier rows REGISTRY, and let exactly these pass with terrier rows REGISTRY --allow."
	allowIt      = "If the database is right, see which they are with terrier rows REGISTRY, and let exactly these pass with terrier rows REGISTRY --allow."
)

var ofRows = map[string]Situation{
	tenant.RowUIDMissing:     {"The uid is NULL or empty.", "Give the row a uid, or leave it out with a view."},
	tenant.RowUIDInvalid:     {"The uid cannot be a part of names of objects: lower-case letters, digits and hyphens.", "Change the uid, or map another column to uid."},
	tenant.RowUIDTooLong:     {"The uid is too long for a label.", "Use a shorter one."},
	tenant.RowUIDDuplicate:   {"Several rows have this uid. None of them counts.", "Make the uid unique, best with a unique index."},
	tenant.RowUIDsAlike:      {"Several rows have uids that differ in nothing that a name can show.", "Make them differ."},
	tenant.RowValueUnusable:  {"A value of this row is too large, or no text. Its tenants stay as they are.", "Mend the value, map another column, or shorten it in a view."},
	tenant.RowHostEmpty:      {"The hostOrUrl column is mapped, and empty in this row.", "Fill it in, or leave valueMappings.hostOrUrl out."},
	tenant.RowColumnMissing:  {"A column that is mapped is not there.", "Correct the mapping, or bring the column back. Until then nothing changes."},
	tenant.RowNameTooLong:    {"UID and template make a name that is too long for an object.", "Use a shorter uid, or a shorter name of the template."},
	tenant.RowNameTaken:      {"A Tenant of this name exists, and is not this registry's.", "Delete it, rename the template, or change the uid."},
	"TenantRefused":          {"The API server does not take the Tenant of this row, or its Secret, or does not let it be deleted. It is tried again after longer and longer pauses, and at once when the row or the template changes.", "See the message: mostly a quota, a policy or a webhook. terrier rows REGISTRY --now has it tried now."},
	tenant.RowTenantConflict: {"Two pairs of a uid and a template make the same name.", "Rename one of the templates."},
}

var ofTemplates = map[string]Situation{
	"ValidationPassed":   {"The template can be rendered.", ""},
	"ValidationFailed":   {"The template is not valid, and is not rolled out: tenants keep what they have.", "Correct what the message names: terrier render -f FILE finds the same."},
	"RegistryNotFound":   {"The registry of the template does not exist.", "Make it, in the namespace of the template."},
	"AllTenantsReady":    {"All tenants have this generation, and are ready.", ""},
	"NotAllTenantsReady": {"Not all tenants are ready with this generation.", "See which with terrier tenants --template NAME --not-ready."},
	"NoTenants":          {"No row is active.", ""},
}

var ofRollouts = map[string]Situation{
	"Rollout" + tenantsv1.RolloutIdle:       {"No change is under way.", ""},
	"Rollout" + tenantsv1.RolloutInProgress: {"A change goes out, as rollout of the template says.", ""},
	"Rollout" + tenantsv1.RolloutComplete:   {"All tenants have the newest generation.", ""},
	"Rollout" + tenantsv1.RolloutFailed: {
		"Too many tenants failed, or did not become ready in time. No further tenant is changed; new rows get the last good generation.",
		"See which with terrier rollout status TEMPLATE. Correct the template; or go on with terrier rollout resume TEMPLATE; or go back with terrier rollout undo TEMPLATE.",
	},
	"RolloutStopped": {"A rollout has stopped.", "See why with terrier rollout status TEMPLATE."},
}

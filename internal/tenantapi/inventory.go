package tenantapi

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/inventory"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// SourceInventory is the type of a source whose rows are directories of tenants.
const SourceInventory = "inventory"

// Columns of an inventory. Each variable of the allow-list has one besides, VarColumn and
// its name for the module.
const (
	ColumnUID       = "uid"           // the name of the directory
	ColumnActive    = "active"        // true
	ColumnPath      = "path"          // of the directory, within the artifact
	ColumnTerraform = "terraformPath" // of its root module, within the artifact; empty without a stack
	ColumnDigest    = "digest"        // of everything in the directory
	ColumnHosts     = "hosts"         // JSON: a list of objects
	ColumnVars      = "vars"          // JSON: the variables of the allow-list, by their names for the module
	VarColumn       = "vars."
)

// inventoryColumns are variables of templates without a mapping.
var inventoryColumns = []string{ColumnPath, ColumnTerraform, ColumnDigest, ColumnHosts, ColumnVars}

// inventoryMapping is the meaning of the columns of an inventory. The registry may map more.
func inventoryMapping(r *tenantsv1.TenantRegistry) tenant.Mapping {
	v := r.Spec.ValueMappings
	extra := map[string]string{}
	for _, column := range inventoryColumns {
		extra[column] = column
	}
	maps.Copy(extra, r.Spec.ExtraValueMappings)
	return tenant.Mapping{
		UID: ColumnUID, HostOrURL: v.HostOrURL, Activate: cmp.Or(v.Activate, ColumnActive),
		Extra: extra, ActiveValues: r.Spec.ActiveValues,
	}
}

// DefaultInventoryPath is the directory of inventories that name none.
const DefaultInventoryPath = "tenant-inventory"

// identifier is a name of a variable of a module.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// Inventory is what a registry reads from the directories of its tenants. Its error is
// Invalid, and names the field.
func Inventory(r *tenantsv1.TenantRegistry) (path string, allowed []inventory.Variable, err error) {
	in := r.Spec.Source.Inventory
	if in == nil {
		return "", nil, invalidField("spec.source.inventory", "it is required for type %s", SourceInventory)
	}
	path = cmp.Or(in.Path, DefaultInventoryPath)
	if path = strings.TrimPrefix(path, "./"); !filepath.IsLocal(path) {
		return "", nil, invalidField("spec.source.inventory.path", "%q is no directory of the artifact: name one without .. and without a / at its beginning", in.Path)
	}
	if u := r.Spec.ValueMappings.UID; u != "" && u != ColumnUID {
		return "", nil, invalidField("spec.valueMappings.uid", "it is %q, and the uid of an inventory is the name of the directory: set it to %s, or remove valueMappings", u, ColumnUID)
	}
	if r.Spec.Source.HighWaterMark != "" {
		return "", nil, invalidField("spec.source.highWaterMark", "an inventory has no such column: remove it")
	}
	names := map[string]int{}
	for i, v := range in.Variables {
		field := fmt.Sprintf("spec.source.inventory.variables[%d]", i)
		one := inventory.Variable{Name: v.Name, As: cmp.Or(v.As, v.Name), Type: inventory.Type(cmp.Or(v.Type, string(inventory.Any))), Required: v.Required, Group: cmp.Or(v.Group, inventory.All)}
		if first, twice := names[one.As]; twice {
			return "", nil, invalidField(field, "the variable %s of the module is that of variables[%d], too: give one of them another name with as", one.As, first)
		}
		names[one.As] = i
		if v.Name == "" {
			return "", nil, invalidField(field+".name", "it is missing")
		}
		if !identifier.MatchString(one.As) {
			return "", nil, invalidField(field+".as", "%q is no name of a variable of a module: letters, digits, _ and - can be in it", one.As)
		}
		if !slices.Contains(inventory.Types(), one.Type) {
			return "", nil, invalidField(field+".type", "%q is none of string, number, bool, list, map and any", v.Type)
		}
		allowed = append(allowed, one)
	}
	columns := InventoryColumns(allowed)
	m := inventoryMapping(r)
	wanted := map[string]string{"spec.valueMappings.hostOrUrl": m.HostOrURL, "spec.valueMappings.activate": m.Activate}
	for name, column := range r.Spec.ExtraValueMappings {
		wanted["spec.extraValueMappings."+name] = column
	}
	for _, field := range slices.Sorted(maps.Keys(wanted)) {
		if column := wanted[field]; column != "" && !slices.Contains(columns, column) {
			return "", nil, invalidField(field, "an inventory has no column %q; there are %s", column, strings.Join(columns, ", "))
		}
	}
	return path, allowed, nil
}

// InventoryColumns are all columns of an inventory with this allow-list.
func InventoryColumns(allowed []inventory.Variable) []string {
	columns := append([]string{ColumnUID, ColumnActive}, inventoryColumns...)
	for _, v := range allowed {
		columns = append(columns, VarColumn+cmp.Or(v.As, v.Name))
	}
	return columns
}

func invalidField(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "", fmt.Errorf(field+": "+format, args...))
}

package engine

import (
	"regexp"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
)

// What engines say of providers that init could not install.
var (
	noVersion   = lazy(`(?:list of available versions for|Could not resolve)\s+provider (\S+): no available releases\s+match the given constraints`)
	badChecksum = lazy(`package for (\S+) \S+\s+doesn't match any of the\s+checksums previously recorded in the dependency lock file`)
	notFound    = lazy(`(?:list of available versions for|Could not resolve)\s+provider (\S+):`)
	listed      = lazy(`(?m)^\s*- (\S+)$`)
)

// The registries of providers whose address names none.
const (
	tofuRegistry      = "registry.opentofu.org"
	terraformRegistry = "registry.terraform.io"
)

// ProviderAddress is the whole address of a provider as the engine displays it:
// it leaves out the host of its own registry.
func ProviderAddress(engine, displayed string) string {
	switch {
	case strings.Count(displayed, "/") != 1:
		return displayed
	case engine == "terraform":
		return terraformRegistry + "/" + displayed
	default:
		return tofuRegistry + "/" + displayed
	}
}

// UnfitProviders returns the addresses of the providers of which init found no
// version that the module asks for, or no package that its lock file names.
func UnfitProviders(engine string, diags []plan.Diagnostic) []string {
	return providersIn(engine, diags, noVersion(), badChecksum())
}

// MissingProviders returns the addresses of the providers that init found
// nowhere.
func MissingProviders(engine string, diags []plan.Diagnostic) []string {
	return providersIn(engine, diags, notFound())
}

func providersIn(engine string, diags []plan.Diagnostic, shapes ...*regexp.Regexp) []string {
	var found []string
	for _, d := range diags {
		if d.Severity != "error" {
			continue
		}
		for _, shape := range shapes {
			if m := shape.FindStringSubmatch(d.Detail); m != nil {
				found = append(found, ProviderAddress(engine, m[1]))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// LocalChecksums returns the providers of which init says that it knows only the
// checksum of the package for this platform; nil if d says something else.
func LocalChecksums(engine string, d plan.Diagnostic) []string {
	if d.Severity != "warning" || d.Summary != "Incomplete lock file information for providers" {
		return nil
	}
	var found []string
	for _, m := range listed().FindAllStringSubmatch(d.Detail, -1) {
		found = append(found, ProviderAddress(engine, m[1]))
	}
	return found
}

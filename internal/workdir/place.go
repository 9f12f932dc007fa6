package workdir

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// What a file of a stack may not take the place of in the working directory, in
// the root module itself.
var (
	refusedFiles = []string{
		VariablesPath, BackendOverridePath, ImportsPath, TemplatePath, "terrier.tfrc", "terrier.tfbackend", "terrier.pem",
		"terraform.tfstate", "terraform.tfstate.backup", "errored.tfstate", "crash.log", "terraform.tfstate.d",
	}
	refusedDirs = []string{".terraform", ".terrier"} // and names that begin with them
)

// What it may not take the place of at home: the configuration of the engine's
// command line, and providers.
var refusedAtHome = []string{".terraformrc", ".tofurc", ".terraform.d/plugins", ".terraform.d/plugin-cache", ".terraform.d/checkpoint_signature"}

// CheckPlace reports whether a stack may have a file of its own at p, below the
// home directory of a run or below its working directory. It may not be where
// the platform's own files are, nor where it would decide which backend or which
// provider the engine uses.
func CheckPlace(p string, home bool) error {
	switch {
	case p == "" || p == "." || path.Clean(p) != p || strings.HasPrefix(p, "/") || p == ".." || strings.HasPrefix(p, "../"):
		return placeFault("%q is not the path of a file below it", p)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return placeFault("%q holds a character that does not belong in a path", p)
	case home && slices.ContainsFunc(refusedAtHome, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") }):
		return placeFault("%s at home would change how the engine works: use spec.cliConfigSecretRef", p)
	case home:
		return nil
	}
	first, _, _ := strings.Cut(strings.ToLower(p), "/")
	begins := func(d string) bool { return strings.HasPrefix(first, d) }
	if slices.Contains(refusedFiles, first) || slices.ContainsFunc(refusedDirs, begins) {
		return placeFault("%s is the platform's own, or the engine's", p)
	}
	if p == first && isOverride(first) {
		return placeFault("%s would override the module's configuration", p)
	}
	return nil
}

func placeFault(format string, args ...any) error {
	return fault.New(fault.Invalid, "PathInvalid", fmt.Errorf(format, args...))
}

// configExtensions are those of files that an engine reads as configuration.
var configExtensions = []string{".tf", ".tofu", ".tf.json", ".tofu.json"}

// IsConfiguration reports whether an engine reads a file of the root module as
// configuration.
func IsConfiguration(p string) bool {
	return !strings.Contains(p, "/") && slices.ContainsFunc(configExtensions, func(e string) bool { return strings.HasSuffix(p, e) })
}

func isOverride(name string) bool {
	for _, e := range configExtensions {
		if base, ok := strings.CutSuffix(name, e); ok && (base == "override" || strings.HasSuffix(base, "_override")) {
			return true
		}
	}
	return false
}

// placedBytes bounds all files of one stack that hold Secrets.
const placedBytes = 8 << 20

// CheckSizes reports whether files are few and small enough.
func CheckSizes(files []File) error {
	total := 0
	for _, f := range files {
		total += len(f.Content)
	}
	if total > placedBytes {
		return placeFault("they hold %d bytes, more than %d", total, placedBytes)
	}
	return nil
}

var host = lazy(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:[0-9]{1,5})?$`)

// IsHost reports whether s names a host, with a port or without, the way that
// engines compare them.
func IsHost(s string) bool { return len(s) <= maxName && host().MatchString(s) }

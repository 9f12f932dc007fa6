package workdir

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

var environmentName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// SplitEnvironment says which keys of a Secret are variables of the module and
// which are environment for its providers: those that the module does not
// declare and that look like one (AWS_ACCESS_KEY_ID, ARM_CLIENT_SECRET). Other
// keys that are not declared stay variables; the engine warns of them.
func SplitEnvironment(declared map[string]Variable, keys []string) (vars, environment []string) {
	for _, key := range keys {
		if _, ok := declared[key]; !ok && environmentName.MatchString(key) {
			environment = append(environment, key)
		} else {
			vars = append(vars, key)
		}
	}
	return vars, environment
}

// Names that steer the engine, its plugins, or the way processes are started
// and reach the network, instead of telling a provider who it is.
var (
	refusedNames = []string{
		"PATH", "HOME", "TMPDIR", "TMP", "TEMP", "PWD", "SHELL", "ENV", "BASH_ENV", "IFS", "USER",
		"GODEBUG", "GOTRACEBACK", "GOMEMLIMIT", "GOMAXPROCS", "GOGC",
	}
	refusedPrefixes = []string{"TF_", "TOFU_", "TERRIER_", "LD_", "DYLD_", "GIT_", "SSH_", "PLUGIN_", "CHECKPOINT_", "XDG_"}
	refusedSuffixes = []string{"_PROXY"}
)

// CheckEnvironment refuses names that a user may not set for a run.
func CheckEnvironment(names []string) error {
	for _, name := range names {
		if err := checkEnvironmentName(name); err != nil {
			return fault.New(fault.Denied, "EnvironmentRefused", err)
		}
	}
	return nil
}

func checkEnvironmentName(name string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return fmt.Errorf("%q is not a name of an environment variable", name)
	}
	upper := strings.ToUpper(name)
	refused := slices.Contains(refusedNames, upper) ||
		slices.ContainsFunc(refusedPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) }) ||
		slices.ContainsFunc(refusedSuffixes, func(s string) bool { return strings.HasSuffix(upper, s) })
	if refused {
		return fmt.Errorf("the environment variable %s controls the engine or its process and cannot be set", name)
	}
	return nil
}

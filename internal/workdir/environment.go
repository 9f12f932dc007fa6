package workdir

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/fault"
)

var (
	credentialName  = lazy(`^[A-Z_][A-Z0-9_]*$`)
	environmentName = lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// maxName is the length of the longest name of an environment variable.
const maxName = 255

// lazy compiles an expression when it is first used: the supervisor, which is
// started several times for every run, uses none but one.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// splitEnvironment says which keys of a Secret are variables of the module and
// which are environment for its providers: those that the module does not
// declare and that look like one (AWS_ACCESS_KEY_ID, ARM_CLIENT_SECRET). Other
// keys that are not declared stay variables; the engine warns of them.
func splitEnvironment(declared map[string]Variable, keys []string) (vars, environment []string) {
	for _, key := range keys {
		if _, ok := declared[key]; !ok && credentialName().MatchString(key) {
			environment = append(environment, key)
		} else {
			vars = append(vars, key)
		}
	}
	return vars, environment
}

// refusedNames are variables that control the engine, its providers' start, or
// any program below it. They can choose another backend, another provider binary or
// another program, so that only the supervisor sets them (threat T03).
var refusedNames = []string{
	"PATH", "HOME", "TMPDIR", "TMP", "TEMP", "SHELL", "IFS", "ENV", "BASH_ENV", "PWD", "USER",
	"GODEBUG", "GOTRACEBACK", "GOMEMLIMIT", "GOGC", "GOMAXPROCS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"PYTHONPATH", "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "GCONV_PATH", "OPENSSL_CONF",
}

// Families of such variables. TF_VAR_ is the one part of TF_ that is free: it
// sets a variable of the module and nothing else.
var (
	refusedPrefixes = []string{"TF_", "TOFU_", "TERRIER_", "LD_", "DYLD_", "GIT_", "SSH_", "PLUGIN_", "CHECKPOINT_", "BASH_FUNC_", "XDG_"}
	refusedSuffixes = []string{"_PROXY"}
	freePrefix      = "TF_VAR_"
)

// CheckEnvironment reports whether a user may set the environment variable in
// a run: Invalid if it is not a name at all, Denied if it is reserved. Programs
// differ in how they treat case, so case does not help.
func CheckEnvironment(name string) error {
	if len(name) > maxName || !environmentName().MatchString(name) {
		return fault.New(fault.Invalid, "EnvironmentInvalid", fmt.Errorf("%q is not the name of an environment variable", name))
	}
	upper := strings.ToUpper(name)
	refused := slices.Contains(refusedNames, upper) ||
		slices.ContainsFunc(refusedPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) }) ||
		slices.ContainsFunc(refusedSuffixes, func(s string) bool { return strings.HasSuffix(upper, s) })
	if refused && !strings.HasPrefix(upper, freePrefix) {
		return fault.New(fault.Denied, "EnvironmentDenied",
			fmt.Errorf("the environment variable %s controls the engine or its processes and cannot be set by a stack", name))
	}
	return nil
}

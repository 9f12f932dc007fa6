package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

var envName = lazy(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// forbiddenEnv are variables that control the engine, its providers' start, or
// any program below it. Who may set them may choose another backend, another
// provider binary or another program, so nobody but the supervisor does.
var forbiddenEnv = []string{
	"PATH", "HOME", "TMPDIR", "TMP", "TEMP", "SHELL", "IFS", "ENV", "BASH_ENV", "PWD", "USER",
	"CHECKPOINT_DISABLE", "CHECKPOINT_TIMEOUT", "PLUGIN_PROTOCOL_VERSIONS", "GODEBUG", "GOTRACEBACK",
	"GOMEMLIMIT", "GOGC", "GOMAXPROCS", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"PYTHONPATH", "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS",
}

// Families of such variables. TF_VAR_ is the one part of TF_ that is free: it
// sets a variable of the module and nothing else.
var (
	forbiddenPrefixes = []string{"TF_", "TOFU_", "TERRIER_", "LD_", "DYLD_", "GIT_", "SSH_", "PLUGIN_", "BASH_FUNC_", "XDG_"}
	forbiddenSuffixes = []string{"_PROXY"}
	freePrefixes      = []string{"TF_VAR_"}
)

// CheckEnv reports whether a user may set the environment variable name in a
// run: Invalid if it is not a name at all, Denied if it is reserved. Programs
// differ in how they treat case, so case does not help.
func CheckEnv(name string) error {
	if !envName().MatchString(name) {
		return fault.New(fault.Invalid, "EnvironmentInvalid", fmt.Errorf("%q is not the name of an environment variable", name))
	}
	upper := strings.ToUpper(name)
	has := func(list []string, match func(s, part string) bool) bool {
		return slices.ContainsFunc(list, func(part string) bool { return match(upper, part) })
	}
	switch {
	case has(freePrefixes, strings.HasPrefix):
		return nil
	case slices.Contains(forbiddenEnv, upper), has(forbiddenPrefixes, strings.HasPrefix), has(forbiddenSuffixes, strings.HasSuffix):
		return fault.New(fault.Denied, "EnvironmentDenied",
			fmt.Errorf("the environment variable %s controls the engine or its processes and cannot be set by a stack", name))
	}
	return nil
}

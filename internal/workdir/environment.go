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
	freePrefix      = "TF_VAR_"
)

// CheckEnvironment reports whether a user may set the environment variable in
// a run: Invalid if it is not a name at all, Denied if it is reserved. Programs
// differ in how they treat case, so case does not help. settable are the reserved
// names that the operator lets stacks set.
func CheckEnvironment(name string, settable ...string) error {
	if len(name) > maxName || !environmentName().MatchString(name) {
		return fault.New(fault.Invalid, "EnvironmentInvalid", fmt.Errorf("%q is not the name of an environment variable", name))
	}
	upper := strings.ToUpper(name)
	if strings.HasPrefix(upper, freePrefix) || !reserved(upper) || slices.ContainsFunc(settable, func(s string) bool { return strings.EqualFold(s, name) }) {
		return nil
	}
	return fault.New(fault.Denied, "EnvironmentDenied", ReservedName{name, alternative(upper)})
}

// ReservedName is the error of an environment variable that no stack may set.
type ReservedName struct {
	Name string
	Way  string // how a stack gets what users want of it; empty if there is no way
}

// Error implements error.
func (r ReservedName) Error() string {
	complaint := fmt.Sprintf("the environment variable %s controls the engine or its processes and cannot be set by a stack", r.Name)
	if r.Way == "" {
		return complaint
	}
	return complaint + ": " + r.Way
}

// alternative says how a stack gets what users want of a reserved variable;
// empty if there is no way.
func alternative(upper string) string {
	if IsProxy(upper) {
		return fmt.Sprintf("the operator sets it for all runs with --run-env %[1]s=VALUE, or lets stacks set it with --allow-stack-env %[1]s", upper)
	}
	for _, a := range alternatives {
		if strings.HasPrefix(upper, a.prefix) {
			return a.way
		}
	}
	return ""
}

func reserved(upper string) bool {
	return slices.Contains(refusedNames, upper) ||
		slices.ContainsFunc(refusedPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) }) || IsProxy(upper)
}

// IsProxy reports whether an environment variable says through which proxy
// programs reach the network. It is the one kind of reserved variable that an
// operator can let stacks set.
func IsProxy(name string) bool { return strings.HasSuffix(strings.ToUpper(name), proxySuffix) }

const proxySuffix = "_PROXY"

// alternatives to reserved variables. The first that fits counts.
var alternatives = []struct{ prefix, way string }{
	{"TF_TOKEN_", "give the token in the Secret of spec.cliConfigSecretRef"},
	{"TF_WORKSPACE", "set spec.workspace"},
	{"TF_LOG", "a log of that level would show secrets of providers; terrier logs shows the output of the engine"},
	{"TF_CLI_ARGS", "set spec.targets, spec.parallelism or spec.tfVarsFiles"},
	{"TF_CLI_CONFIG_FILE", "set spec.cliConfigSecretRef"},
	{"TF_PLUGIN_CACHE_DIR", "the operator can keep providers in a mirror, with --provider-mirror"},
	{"TF_HTTP_", "set spec.backendConfig.customConfiguration to keep the state elsewhere"},
	{"GIT_", "bring a .gitconfig or a .netrc with spec.fileMappings, at the location home"},
	{"SSL_CERT_", "the operator adds certificate authorities for runs with --run-ca-file"},
}

// CheckPlatformEnvironment reports whether an operator may set the environment
// variable for all runs. Those stay reserved that the supervisor sets, and those
// that are inputs of a stack: with them a plan would depend on what no stack says.
func CheckPlatformEnvironment(name string) error {
	if len(name) > maxName || !environmentName().MatchString(name) {
		return fault.New(fault.Invalid, "EnvironmentInvalid", fmt.Errorf("%q is not the name of an environment variable", name))
	}
	upper := strings.ToUpper(name)
	if slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, upper) ||
		slices.ContainsFunc([]string{"TF_", "TOFU_", "TERRIER_", "LD_", "PLUGIN_", "CHECKPOINT_"}, func(p string) bool { return strings.HasPrefix(upper, p) }) {
		return fault.New(fault.Denied, "EnvironmentDenied", fmt.Errorf("%s is set by Terrier, or is an input of a stack, and cannot be set for all runs", name))
	}
	return nil
}

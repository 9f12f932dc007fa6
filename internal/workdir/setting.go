package workdir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Setting is one environment variable that a stack gives to its runs.
type Setting struct {
	Name   string
	Value  string
	Secret bool // it comes out of a Secret
	Refers bool // $(NAME) in it is the value of the setting before it that has that name
}

// maxSetting is the longest that one environment variable may be for a program
// to be started with it.
const maxSetting = 128<<10 - 2

// EnvironmentBytes bounds all variables of one environment, with their names: a kernel
// starts no program with more than 2 MiB of environment and arguments, and the platform's
// own are among them.
const EnvironmentBytes = 1 << 20

// Environ is what settings come to, in their order: later ones win, and refer
// to what stands before them. settable is as for CheckEnvironment.
func Environ(settings []Setting, settable ...string) (map[string]string, error) {
	env, total := map[string]string{}, 0
	for _, s := range settings {
		if err := CheckEnvironment(s.Name, settable...); err != nil {
			return nil, err
		}
		value, fits := s.Value, true
		if s.Refers {
			value, fits = expand(value, env)
		}
		if strings.ContainsRune(value, 0) {
			return nil, settingFault(s.Name, "holds a NUL byte and cannot be an environment variable")
		}
		if !fits || len(s.Name)+1+len(value) > maxSetting {
			return nil, settingFault(s.Name, fmt.Sprintf("is too long for an environment variable: it may have %d bytes", maxSetting-1-len(s.Name)))
		}
		if total += len(s.Name) + 1 + len(value); total > EnvironmentBytes {
			return nil, EnvironmentTooLarge()
		}
		env[s.Name] = value
	}
	return env, nil
}

// EnvironmentTooLarge is the error of an environment with more than EnvironmentBytes.
func EnvironmentTooLarge() error {
	return fault.New(fault.Invalid, "EnvironmentInvalid", fmt.Errorf("the environment variables of the stack have more than %d bytes together: give large values as files (fileMappings) or as variables of the module", EnvironmentBytes))
}

func settingFault(name, complaint string) error {
	return fault.New(fault.Invalid, "EnvironmentInvalid", fmt.Errorf("the value of %s %s", name, complaint))
}

// expand replaces $(NAME) as Kubernetes does: a name that is not known stays as
// it is, and $$ is a dollar sign. It ends early, with fits false, at more than
// maxSetting: what refers often to something long must not be built first.
func expand(s string, env map[string]string) (value string, fits bool) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found || b.Len() > maxSetting {
			return b.String(), b.Len() <= maxSetting
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, known := env[name]
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "(") && closed && known:
			b.WriteString(value)
			s = after
		default:
			b.WriteByte('$')
			s = rest
		}
	}
}

// credentialWords are those that names of credentials are made of.
var credentialWords = []string{
	"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PGPASSWORD", "CREDENTIAL", "CREDENTIALS",
	"SESSION", "SAS", "JWT", "APIKEY", "PEM", "CERT", "CERTIFICATE",
}

// isCredential reports whether the name of an environment variable says that it
// is a credential: what is renewed, and says who acts rather than on what.
// AWS_SESSION_TOKEN is one, AWS_REGION is none, and neither is TF_VAR_token, a
// variable of the module.
func isCredential(name string) bool {
	upper := strings.ToUpper(name)
	if strings.HasPrefix(upper, freePrefix) {
		return false
	}
	words := strings.Split(upper, "_")
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(credentialWords, w) }) ||
		len(words) > 1 && slices.Contains(words, "KEY") || strings.HasSuffix(upper, "_ACCESS_KEY_ID")
}

// Lasting lists what of settings a plan depends on: everything but the values
// of credentials out of Secrets, which may be renewed while a plan waits.
func Lasting(settings []Setting) []string {
	list := make([]string, 0, len(settings))
	for _, s := range settings {
		if s.Secret && isCredential(s.Name) {
			list = append(list, s.Name)
		} else {
			list = append(list, s.Name+"="+s.Value)
		}
	}
	return list
}

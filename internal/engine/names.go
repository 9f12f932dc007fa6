package engine

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Nothing that a user typed becomes an argument of the engine before it passed
// one of these checks. None lets a text begin with a dash or hold a control
// character, so none can become an option or a second argument.

var (
	workspaceName = lazy(`^[A-Za-z0-9_][A-Za-z0-9._~-]{0,89}$`)
	lockID        = lazy(`^[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,253}$`)
	backendKey    = lazy(`^[a-z][a-z0-9_.]{0,63}$`)
	// A resource address: names, indices in brackets, dots.
	target = lazy(`^[A-Za-z_][\pL\pN_-]*(\[("([^"\\]|\\.)*"|[0-9]+)\])?(\.[\pL_][\pL\pN_-]*(\[("([^"\\]|\\.)*"|[0-9]+)\])?)*$`)
)

// lazy compiles an expression when it is first used: the supervisor is started
// for every run, and most runs use none.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// checkWorkspace reports whether name can be a workspace.
func checkWorkspace(name string) error {
	if !workspaceName().MatchString(name) || strings.Contains(name, "..") {
		return invalid("workspace name", name)
	}
	return nil
}

// CheckTarget reports whether addr is the address of a module, a resource or a
// resource instance.
func CheckTarget(addr string) error {
	if len(addr) > 1024 || !plain(addr) || !target().MatchString(addr) {
		return invalid("target address", addr)
	}
	return nil
}

// CheckVarFile reports whether path names a file inside the root module.
func CheckVarFile(path string) error {
	if len(path) > 1024 || !plain(path) || strings.HasPrefix(path, "-") || !filepath.IsLocal(path) {
		return invalid("variable file", path)
	}
	return nil
}

// checkLockID reports whether id can be the ID of a state lock.
func checkLockID(id string) error {
	if !lockID().MatchString(id) {
		return invalid("lock ID", id)
	}
	return nil
}

// checkBackendConfig reports whether arg is key=value for a backend.
func checkBackendConfig(arg string) error {
	key, value, ok := strings.Cut(arg, "=")
	if !ok || !backendKey().MatchString(key) || !plain(value) {
		return invalid("backend configuration", key)
	}
	return nil
}

// plain reports whether s is valid text without control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func invalid(what, value string) error {
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%q is not a valid %s", value, what))
}

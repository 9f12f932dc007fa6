package stack

import (
	"regexp"
	"strings"
	"sync"
)

// SelectedOutput reads an entry of Outputs.Select: which output it selects, and the
// key of the Secret that the output becomes.
func SelectedOutput(entry string) (output, key string) {
	output, key, renamed := strings.Cut(entry, ":")
	if !renamed {
		key = output
	}
	return output, key
}

// SecretKeys says in words what IsSecretKey allows.
const SecretKeys = "1 to 253 letters of ASCII, digits, hyphens, underscores and dots"

var secretKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`) })

// IsSecretKey reports whether a Secret can have a key.
func IsSecretKey(key string) bool { return secretKey().MatchString(key) }

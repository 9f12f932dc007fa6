package plan

import (
	"iter"
	"regexp"
	"strings"
	"sync"
)

// urls finds the URLs in a text. The text may be HCL, whose expressions have quotes
// and spaces only inside of templates.
var urls = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://[^\s"'<>]+`) })

// urlUser finds the scheme of a URL and its user information. That ends at the last @
// before the path.
var urlUser = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^:]+)://([^/?#]*)@`) })

// parameterNames finds the names of the parameters of a query or of a fragment, and of
// the settings that some addresses of databases have in their place.
var parameterNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[?&;#]([^=?&;#]+)=`) })

// tellingParameters are names of parameters, beside those of Telling, that hold a secret.
var tellingParameters = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(key|apikey|api-key|subscription-key|code|auth|authorization|pass|pwd|sig|signature|x-amz-signature|x-goog-signature|jwt|sas)$`)
})

// computed matches user information that holds no literal, as in an HCL template.
var computed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^:?(\$\{[^}]*\}:?)+$`) })

// MaskURLs replaces the secrets in the URLs of a text by Mask, and says how many: the
// user information, which is a token where it is no password, and parameters whose
// name says that they hold a secret. The user of ssh stays.
func MaskURLs(text string) (masked string, n int) {
	if !strings.Contains(text, "://") {
		return text, 0
	}
	masked = urls().ReplaceAllStringFunc(text, func(address string) string {
		var out strings.Builder
		for piece := range nestedURLs(address) {
			out.WriteString(maskUser(piece, &n))
		}
		return maskParameters(out.String(), &n)
	})
	return masked, n
}

// nestedURLs cuts an address before each address that it holds. An address may hold
// as many as it is long, so one pass finds them all.
func nestedURLs(address string) iter.Seq[string] {
	return func(yield func(string) bool) {
		const separator = "://"
		begin, from := 0, 0 // of the piece, and of the text after its scheme
		for {
			at := strings.Index(address[from:], separator)
			if at < 0 {
				break
			}
			scheme := from + len(strings.TrimRight(address[from:from+at], schemeLetters+schemeOthers))
			for scheme < from+at && strings.IndexByte(schemeOthers, address[scheme]) >= 0 {
				scheme++ // a scheme begins with a letter
			}
			if scheme < from+at && scheme > begin {
				if !yield(address[begin:scheme]) {
					return
				}
				begin = scheme
			}
			from += at + len(separator)
		}
		yield(address[begin:])
	}
}

// What a scheme consists of. It begins with a letter.
const (
	schemeLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	schemeOthers  = "0123456789+.-"
)

func maskUser(address string, n *int) string {
	m := urlUser().FindStringSubmatch(address)
	if m == nil || !isSecretUser(m[1], m[2]) {
		return address
	}
	*n++
	return m[1] + "://" + Mask + address[len(m[0])-1:]
}

// maskParameters masks the values of parameters with a telling name. The value of
// another parameter may be an address with parameters of its own.
func maskParameters(address string, n *int) string {
	var out strings.Builder
	for {
		m := parameterNames().FindStringSubmatchIndex(address)
		if m == nil {
			break
		}
		name := address[m[2]:m[3]]
		out.WriteString(address[:m[1]])
		address = address[m[1]:]
		if !Telling(name) && !tellingParameters().MatchString(name) {
			continue
		}
		end := strings.IndexAny(address, "&;#")
		if end < 0 {
			end = len(address)
		}
		value := address[:end]
		if value != "" && value != Mask && !computed().MatchString(value) {
			value = Mask
			*n++
		}
		out.WriteString(value)
		address = address[end:]
	}
	return out.String() + address
}

func isSecretUser(scheme, user string) bool {
	_, password, _ := strings.Cut(user, ":")
	isSSH := strings.EqualFold(scheme, "ssh") || strings.HasSuffix(strings.ToLower(scheme), "+ssh")
	return user != "" && user != Mask && !computed().MatchString(user) && (password != "" || !isSSH)
}

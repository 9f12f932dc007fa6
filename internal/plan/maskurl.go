package plan

import (
	"regexp"
	"strings"
	"sync"
)

// urls finds the URLs in a text. The text may be HCL, whose expressions have quotes
// and spaces only inside of templates.
var urls = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://[^\s"'<>]+`) })

// urlParts are the scheme of a URL, its user information, and the rest of it. The user
// information ends at the last @ before the path.
var urlParts = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^:]+)://([^/?#]*@)?(.*)$`) })

// parameters finds the parameters of a query or of a fragment, and of the settings
// that some addresses of databases have in their place.
var parameters = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([?&;#])([^=?&;#]+)=([^&;#]+)`) })

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
		parts := urlParts().FindStringSubmatch(address)
		scheme, user, rest := parts[1], parts[2], parts[3]
		rest, inner := MaskURLs(rest) // an address may hold another one
		n += inner
		if isSecretUser(scheme, user) {
			user = Mask + "@"
			n++
		}
		rest = parameters().ReplaceAllStringFunc(rest, func(parameter string) string {
			p := parameters().FindStringSubmatch(parameter)
			if p[3] == Mask || computed().MatchString(p[3]) || !Telling(p[2]) && !tellingParameters().MatchString(p[2]) {
				return parameter
			}
			n++
			return p[1] + p[2] + "=" + Mask
		})
		return scheme + "://" + user + rest
	})
	return masked, n
}

func isSecretUser(scheme, user string) bool {
	user = strings.TrimSuffix(user, "@")
	_, password, _ := strings.Cut(user, ":")
	isSSH := strings.EqualFold(scheme, "ssh") || strings.HasSuffix(strings.ToLower(scheme), "+ssh")
	return user != "" && user != Mask && !computed().MatchString(user) && (password != "" || !isSSH)
}

package scan

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// strength is how surely a name says that its value is a secret.
type strength int

const (
	noSecret strength = iota
	weak              // the value must look as if it were made by a machine
	strong            // any literal is one
)

// strongest are the last words of names whose literal values are secrets.
var strongest = []string{
	"password", "passwd", "passphrase", "pwd", "pass", "apikey", "privatekey", "authkey", "clientsecret", "signingsecret", "rootpw",
	"api key", "private key", "client secret", "encryption key", "signing key", "secret access key", "account key", "master key", "auth key",
	"webhook secret", "app secret", "consumer secret", "shared secret", "hmac secret", "jwt secret", "cookie secret", "session secret", "pre shared key",
}

// weakest are those of names that are often names of references, too.
var weakest = []string{
	"secret", "secrets", "token", "tokens", "credential", "credentials", "secretkey", "accesskey", "secret key", "access key", "auth", "psk", "sas", "salt",
	"secret id", "connection string", "license key", "webhook url", "dsn", "authorization", "bearer", "jwt",
}

// fillers are last words of names that say nothing of what the value is.
var fillers = []string{"value", "base64", "b64", "plain", "plaintext", "text", "string", "default", "new", "old", "current", "literal", "json", "data", "input", "raw", "wo"}

// isReferring is about names such as existingSecret: their values are where a secret is.
func isReferring(all []string) bool {
	return slices.ContainsFunc(all, func(w string) bool { return w == "existing" || w == "ref" || w == "reference" })
}

// strengthOf judges a name: password, db_password, DB_PASSWORD, dbPassword, spring.datasource.password.
func strengthOf(name string) strength {
	all := words(name)
	if isReferring(all) {
		return noSecret
	}
	for len(all) > 1 && (slices.Contains(fillers, all[len(all)-1]) || strings.Trim(all[len(all)-1], "0123456789") == "") {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return noSecret
	}
	for n := min(3, len(all)); n > 0; n-- {
		last := strings.Join(all[len(all)-n:], " ")
		switch {
		case slices.Contains(strongest, last):
			return strong
		case slices.Contains(weakest, last):
			return weak
		}
	}
	return noSecret
}

// words are those of a name, in lower case.
func words(name string) []string {
	var all []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			all = append(all, strings.ToLower(string(word)))
		}
		word = nil
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1])),
			unicode.IsUpper(r) && i > 0 && i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1]):
			end()
		}
		word = append(word, r)
	}
	end()
	return all
}

// holdsSecret reports whether a value beside a name is a secret. A strict place takes every
// literal beside a weak name for one.
func holdsSecret(name, value string, strict bool) bool {
	if !isLiteral(value) {
		return false
	}
	switch strengthOf(name) {
	case strong:
		return !isProse(value)
	case weak:
		return strict && !isProse(value) || isRandom(value)
	default:
		return false
	}
}

// Patterns of values.
var (
	reference = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*(?:(?:vault|awssm|gcpsm|azkv|op|bao|ssm|sops|env|file|secretref|keyvault|akv|k8s)://|vault:|ref\+|secretref:|env:|ENC\[|!vault|arn:[a-z0-9-]*:(?:secretsmanager|ssm):|projects/[^/]+/secrets/|\$[A-Za-z_{(][\w]*|%[A-Z_]+%\s*$|@Microsoft\.KeyVault)`)
	})
	template = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\{\{|\$\{|%\{|\$\(|<[^<>]*>|<%|\$\$?[A-Z_]{3,}|\$\d`)
	})
	placeholder = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^(?:change[-_ ]?(?:me|this|it)\b.*|replace[-_ ].*|to[-_ ]?be[-_ ].*|your[-_ ].*|insert[-_ ].*|enter[-_ ].*|put[-_ ].*[-_ ]here|todo.*|fixme.*|tbd|none|null|nil|n/a|unset|undefined|empty|string|sensitive|true|false|yes|no|on|off|enabled|disabled|required|optional|auto|random|generated?|unknown|masked|hidden)$|x{3,}|\*{3,}|•|\.{3}|…|placeholder|redacted|dummy|example|^\[.*\]$|^_+$|^-+$`)
	})
	duration = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\d+(?:\.\d+)?(?:ns|us|ms|s|m|h|d|w|y|[KMGT]i?B?|%)?$`)
	})
	location  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\.{0,2}/[\w.@-]+)+/?$|^[A-Za-z]:\\|^~/`) })
	address   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`) })
	separated = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(?:[-._/:][A-Za-z0-9]+)+$`) })
	digest    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\$(?:2[abxy]|1|5|6|argon2\w*|scrypt|apr1)\$|^sha(?:1|256|384|512)[-:]`)
	})
)

// isReference reports whether the whole value says where a secret is.
func isReference(value string) bool {
	return value == "" || reference().MatchString(value) && !strings.ContainsAny(value, "\n")
}

// isLiteral reports whether a value of one line or more is written out: it is no reference,
// no template and no placeholder.
func isLiteral(value string) bool {
	value = strings.TrimSpace(value)
	return value != "" && !isReference(value) && !template().MatchString(value) && !placeholder().MatchString(value) && !location().MatchString(value) &&
		!digest().MatchString(value) && !isAddress(value)
}

// isAddress is about URLs: what is secret in one is found as a connection string.
func isAddress(value string) bool { return address().MatchString(value) }

// isProse reports whether a value is a sentence for people: words without digits.
func isProse(value string) bool {
	return len(strings.Fields(value)) > 2 && !strings.ContainsAny(value, "0123456789")
}

// isRandom reports whether a value looks as if it were made by a machine, or as a password.
func isRandom(value string) bool {
	if len(value) < 8 || strings.ContainsAny(value, " \t") || duration().MatchString(value) || !strings.ContainsAny(value, "0123456789") || entropy(value) < 3 {
		return false
	}
	if !separated().MatchString(value) {
		return true
	}
	// As names of objects and of hosts are written: one of the parts must be long and mixed.
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("-._/:", r) })
	return slices.ContainsFunc(parts, func(part string) bool {
		return len(part) >= 16 && strings.ContainsAny(part, "0123456789") && entropy(part) >= 3
	})
}

// openNames are last words of names whose values in a Secret are no secrets.
var openNames = []string{
	"username", "user", "login", "email", "host", "hostname", "port", "endpoint", "url", "uri", "address", "server", "database", "dbname", "db", "name", "region", "zone", "bucket",
	"type", "namespace", "version", "realm", "issuer", "audience", "subject", "domain", "scheme", "protocol", "driver", "engine", "project", "org", "organization", "account", "known", "hosts", "enabled",
}

// isPublic reports whether what stands in a Secret, or in a sensitive value, is none.
func isPublic(name, value string) bool {
	value = strings.TrimSpace(value)
	all := words(name)
	switch {
	case duration().MatchString(value) && strengthOf(name) != strong:
		return true
	case strings.HasPrefix(value, "-----BEGIN CERTIFICATE") && !strings.Contains(value, "PRIVATE KEY"), strings.HasPrefix(value, "-----BEGIN PUBLIC KEY"), strings.HasPrefix(value, "ssh-"):
		return true
	}
	return len(all) > 0 && slices.Contains(openNames, all[len(all)-1]) && strengthOf(name) == noSecret
}

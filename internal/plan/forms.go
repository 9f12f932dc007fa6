package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// forms returns the texts under which a secret value may appear.
func forms(v string) []string {
	if len(v) < minValue || v == "true" || v == "false" || v == "null" {
		return nil
	}
	var out []string
	for _, text := range append([]string{v}, lines(v)...) {
		out = append(out, text)
		out = append(out, quoted(text)...)
		out = append(out, urlEscaped(text)...)
		out = append(out, inBase64(text)...)
	}
	return out
}

// quoted returns v as it stands inside quotes: in JSON with and without the
// escaping of < > &, in JSON that is itself a JSON string, and in Go or HCL.
func quoted(v string) []string {
	html, plain := jsonInner(v, true), jsonInner(v, false)
	goQuoted := strconv.Quote(v)
	return []string{
		html, plain,
		jsonInner(html, true), jsonInner(html, false), jsonInner(plain, true), jsonInner(plain, false),
		goQuoted[1 : len(goQuoted)-1],
	}
}

func jsonInner(v string, escapeHTML bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	if err := enc.Encode(v); err != nil {
		return v // a string always encodes
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// Compiled when it is first used: every supervisor links this, and few need it.
var percent = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%[0-9A-F]{2}`) })

func urlEscaped(v string) []string {
	var out []string
	for _, escaped := range []string{url.QueryEscape(v), url.PathEscape(v), strings.ReplaceAll(url.QueryEscape(v), "+", "%20")} {
		out = append(out, escaped, percent().ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	return out
}

// inBase64 returns what is recognisable of v in base64: the encoding of v
// alone, and the part of the encoding of a longer text with v in it that
// depends on v only, for each of the three ways v can be aligned there
// (as in the "user:password" of an Authorization header).
func inBase64(v string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		raw := enc.WithPadding(base64.NoPadding)
		out = append(out, enc.EncodeToString([]byte(v)), raw.EncodeToString([]byte(v)))
		for shift := range 3 {
			text := raw.EncodeToString(append(make([]byte, shift), v...))
			// The first character that holds no bit of the shift, and the last
			// that holds no bit of what would follow v.
			from, to := (shift*8+5)/6, (shift+len(v))*8/6
			if inner := text[from:to]; len(inner) >= minLine {
				out = append(out, inner)
			}
		}
	}
	return out
}

package scan

import (
	"math"
	"regexp"
	"strings"
	"sync"
)

// tokenFormat is a format of tokens that is known from their issuer's documentation.
type tokenFormat struct {
	rule  string
	title string
	text  string // a regular expression
	show  int    // how many of the first characters are the same in all tokens
	bare  bool   // nothing in it is random
	hint  string // a text that every token has, in lower case

	length int // of a token in characters; 0 if the expression says it
}

// formats are those of many issuers. A token of an issuer that is not among them is found by
// its name.
var formats = []tokenFormat{
	{"private-key", "a private key", `-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`, 11, true, "private key", 0},
	{"aws-access-key", "an access key of AWS", `\b(?:AKIA|ASIA)[A-Z2-7]{16}\b`, 4, false, "", 0},
	{"github-token", "a token of GitHub", `\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255})\b`, 4, false, "gh", 0},
	{"gitlab-token", "a token of GitLab", `\bgl(?:pat|dt|rt|ptt|cbt|soat)-[A-Za-z0-9_-]{20,}`, 6, false, "gl", 0},
	{"slack-token", "a token of Slack", `\bxox[abeoprs]-[A-Za-z0-9-]{10,}`, 5, false, "xox", 0},
	{"slack-webhook", "a webhook of Slack", `https://hooks\.slack\.com/services/T[A-Za-z0-9]+/B[A-Za-z0-9]+/[A-Za-z0-9]{16,}`, 33, false, "hooks.slack.com", 0},
	{"google-api-key", "an API key of Google", `\bAIza[0-9A-Za-z_-]{35}`, 4, false, "aiza", 0},
	{"jwt", "a JSON Web Token", `\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`, 3, false, "eyj", 0},
	{"vault-token", "a token of OpenBao or Vault", `\bhv[sbr]\.[A-Za-z0-9_-]{24,}`, 4, false, "hv", 0},
	{"openbao-token", "a token of OpenBao", `\bs\.[A-Za-z]*[0-9][A-Za-z0-9]*\b`, 2, false, "s.", 26},
	{"terraform-token", "a token of HCP Terraform", `\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}`, 0, false, ".atlasv1.", 0},
	{"azure-storage-key", "a key of an Azure storage account", `\bAccountKey=[A-Za-z0-9+/]{86}==`, 11, false, "accountkey=", 0},
	{"stripe-key", "a key of Stripe", `\b[rs]k_live_[0-9a-zA-Z]{20,}`, 8, false, "k_live_", 0},
	{"npm-token", "a token of npm", `\bnpm_[A-Za-z0-9]{36}\b`, 4, false, "npm_", 0},
	{"pypi-token", "a token of PyPI", `\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}`, 5, false, "pypi-", 0},
	{"sendgrid-key", "a key of SendGrid", `\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b`, 3, false, "sg.", 0},
	{"digitalocean-token", "a token of DigitalOcean", `\bdo[opr]_v1_[a-f0-9]{64}\b`, 7, false, "_v1_", 0},
	{"databricks-token", "a token of Databricks", `\bdapi[a-f0-9]{32}\b`, 4, false, "dapi", 0},
	{"hugging-face-token", "a token of Hugging Face", `\bhf_[A-Za-z]{34}\b`, 3, false, "hf_", 0},
	{"age-key", "a private key of age", `\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b`, 16, false, "age-secret-key", 0},
}

// compiledFormat is a format that can be searched for.
type compiledFormat struct {
	tokenFormat
	pattern *regexp.Regexp
}

var compiled = sync.OnceValue(func() []compiledFormat {
	var all []compiledFormat
	for _, f := range formats {
		all = append(all, compiledFormat{f, regexp.MustCompile(f.text)})
	}
	return all
})

// titles are those of the formats, by their rules.
var titles = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, f := range formats {
		all[f.rule] = f.title
	}
	return all
})

// match is a token in a text.
type match struct{ rule, mask string }

// tokensIn finds the tokens in a line. One that documents give as an example is none.
func tokensIn(line string) []match {
	if len(line) < 16 {
		return nil
	}
	var found []match
	lower := strings.ToLower(line)
	for _, f := range compiled() {
		if f.hint != "" && !strings.Contains(lower, f.hint) {
			continue
		}
		for _, token := range f.pattern.FindAllString(line, -1) {
			if !f.bare && (strings.Contains(strings.ToLower(token), "example") || entropy(token[f.show:]) < 2.5 || f.length != 0 && len(token) != f.length) {
				continue
			}
			found = append(found, match{f.rule, token[:f.show] + Mask})
		}
	}
	return found
}

// entropy is that of the characters of a text, in bits for each (Shannon).
func entropy(text string) float64 {
	counts := map[rune]int{}
	n := 0
	for _, r := range text {
		counts[r]++
		n++
	}
	bits := 0.0
	for _, c := range counts {
		p := float64(c) / float64(n)
		bits -= p * math.Log2(p)
	}
	return bits
}

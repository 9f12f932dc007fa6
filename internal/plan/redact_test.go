package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedact(t *testing.T) {
	const key = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nshort\nxK9f2mQq71LpZo\n-----END KEY-----\n"
	for name, tt := range map[string]struct{ value, text, want string }{
		"as it is":                {"hunter2", "pw=hunter2!", "pw=(sensitive)!"},
		"twice":                   {"hunter2", "hunter2hunter2", "(sensitive)(sensitive)"},
		"too short to tell":       {"abc", "abcdef", "abcdef"},
		"true is no secret":       {"true", `{"ok":true}`, `{"ok":true}`},
		"escaped in JSON":         {"a\"b\\c<d", `{"x":"a\"b\\c\u003cd"}`, `{"x":"(sensitive)"}`},
		"escaped in JSON, mildly": {"a\"b\\c<d", `{"x":"a\"b\\c<d"}`, `{"x":"(sensitive)"}`},
		"JSON in JSON":            {"a\"b\nc", `"{\"x\":\"a\\\"b\\nc\"}"`, `"{\"x\":\"(sensitive)\"}"`},
		"in a URL":                {"p@ss/w&rd", "https://u:p%40ss%2Fw%26rd@h/", "https://u:(sensitive)@h/"},
		"in a URL, lower case":    {"p@ss/w&rd", "p%40ss%2fw%26rd", "(sensitive)"},
		"a space in a URL":        {"pass word", "?p=pass+word&q=pass%20word", "?p=(sensitive)&q=(sensitive)"},
		"base64":                  {"hunter2-long", base64.StdEncoding.EncodeToString([]byte("hunter2-long")), "(sensitive)"},
		"a line of a key":         {key, "  xK9f2mQq71LpZo\n", "  (sensitive)\n"},
		"a key, escaped":          {key, strings.ReplaceAll(key, "\n", `\n`), "(sensitive)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRedactor([]string{tt.value})
			if got := string(r.Redact([]byte(tt.text))); got != tt.want {
				t.Errorf("Redact(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestTheLongestValueIsHidden(t *testing.T) {
	r := NewRedactor([]string{"pass", "password1", "password123"})
	if got, want := r.String("x password123 password1 pass"), "x (sensitive) (sensitive) (sensitive)"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestAuthorizationHeadersAreHidden(t *testing.T) {
	const password = "s3cr3t-p4ssw0rd"
	r := NewRedactor([]string{password})
	for _, user := range []string{"a", "ab", "abc", "robot"} {
		header := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		got := r.String(header)
		if decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(got, "=")); err == nil && strings.Contains(string(decoded), password) {
			t.Errorf("user %q: %s still holds the password", user, got)
		}
		if !strings.Contains(got, Mask) {
			t.Errorf("user %q: String(%s) = %s, want a mask in it", user, header, got)
		}
	}
}

func TestRedactJSONStaysJSON(t *testing.T) {
	r := NewRedactor([]string{"5432", "hunter2-key", "a\"b\nc"})
	for text, want := range map[string]string{
		`{"port":5432,"other":54321,"f":1.5}`:    `{"f":1.5,"other":54321,"port":"(sensitive)"}`,
		`{"type":"x","m":{"hunter2-key":[1,2]}}`: `{"m":{"(sensitive)":[1,2]},"type":"x"}`,
		`{"big":12345678901234567890,"s":"no"}`:  `{"big":12345678901234567890,"s":"no"}`,
		`{"s":"<a\"b\nc>"}`:                      `{"s":"<(sensitive)>"}`,
		"plain hunter2-key text":                 "plain (sensitive) text",
		`{"a":1}{"b":"hunter2-key"}`:             `{"a":1}{"b":"(sensitive)"}`,
	} {
		if got := string(r.RedactJSON([]byte(text))); got != want {
			t.Errorf("RedactJSON(%s) = %s, want %s", text, got, want)
		}
	}
}

func TestAnEmptyRedactorChangesNothing(t *testing.T) {
	for name, r := range map[string]*Redactor{"nil": nil, "zero": {}, "no values": NewRedactor(nil)} {
		var out bytes.Buffer
		w := r.Writer(&out)
		if _, err := w.Write([]byte("text")); err != nil {
			t.Fatal(err)
		}
		if got := r.String("text") + string(r.Redact([]byte("text"))) + string(r.RedactJSON([]byte("1"))) + out.String(); got != "texttext1text" {
			t.Errorf("%s: %q, want everything as it was", name, got)
		}
	}
}

// values draws secrets from letters that are not in the mask and not in an
// escape, so that finding one afterwards means that it was left standing.
func values(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("QXZ019\n\"<&+ é")), 4, 24, -1), 1, 8).Draw(t, "values")
}

func TestNoValueSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := values(t)
		r := NewRedactor(secrets)
		var text strings.Builder
		for range rapid.IntRange(1, 12).Draw(t, "pieces") {
			text.WriteString(rapid.SampledFrom([]string{"", "X", "plain ", "Q0", `\n`, "{"}).Draw(t, "between"))
			s := rapid.SampledFrom(secrets).Draw(t, "secret")
			quotedForm, _ := json.Marshal(s)
			text.WriteString(rapid.SampledFrom([]string{
				s, string(quotedForm), url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s)),
			}).Draw(t, "form"))
		}
		whole := r.String(text.String())
		for _, s := range secrets {
			quotedForm, _ := json.Marshal(s)
			for _, form := range []string{s, string(quotedForm[1 : len(quotedForm)-1]), url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
				if strings.Contains(whole, form) {
					t.Fatalf("%q survives in %q", form, whole)
				}
			}
		}
	})
}

func TestPiecesAreRedactedLikeTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := values(t)
		r := NewRedactor(secrets)
		pieces := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(secrets), rapid.StringOfN(rapid.RuneFrom([]rune("QX a\n")), 0, 9, -1))).Draw(t, "pieces")
		text := strings.Join(pieces, "")
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), r.String(text); got != want {
			t.Fatalf("in pieces: %q, whole: %q", got, want)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	var secrets []string
	for i := range 100 {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte{byte(i), 1, 2, 3, 4, byte(i * 7), 9, 8, 7, 6, 5}))
	}
	r := NewRedactor(secrets)
	text := bytes.Repeat(raw(b, "apply.jsonl"), 90)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Redact(text)
	}
}

// What is learned later is hidden by everything that has the Redactor.
func TestWhatIsLearnedLaterIsHidden(t *testing.T) {
	r := NewRedactor([]string{"first-secret"})
	var out strings.Builder
	w := r.Writer(&out)
	if got := r.String("first-secret later-secret"); got != Mask+" later-secret" {
		t.Errorf("before: %q", got)
	}
	r.Learn("later-secret")
	r.Learn("later-secret", "last-secret")
	if got := r.String("first-secret later-secret last-secret"); strings.Contains(got, "secret") {
		t.Errorf("after: %q", got)
	}
	if got := string(r.RedactJSON([]byte(`{"a": "later-secret"}`))); strings.Contains(got, "later-secret") {
		t.Errorf("in JSON: %s", got)
	}
	if got := r.Prints([]byte("key")).String("a later-secret"); strings.Contains(got, "later-secret") {
		t.Errorf("by its prints: %s", got)
	}
	if _, err := w.Write([]byte("one later-")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("secret two")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "one "+Mask+" two" {
		t.Errorf("written: %q", got)
	}
	r.LearnPrefix("eyJhbGciOi.")
	const token = "eyJhbGciOi.eyJpc3MiOi.c2ln-bmF0_dXJl"
	out.Reset()
	w = r.Writer(&out)
	for _, part := range []string{"one ", token[:15], token[15:], " two later-secret"} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "one "+Mask+" two "+Mask {
		t.Errorf("written: %q", got)
	}
	if got := string(r.RedactJSON([]byte(`{"a": "` + token + `"}`))); got != `{"a":"`+Mask+`"}` {
		t.Errorf("in JSON: %s", got)
	}
}

package plan

import (
	"strings"
	"testing"
)

func TestMaskURLs(t *testing.T) {
	for in, want := range map[string]string{
		"https://robot:hunter2@git.example.com/a.git?ref=v1": "https://(sensitive)@git.example.com/a.git?ref=v1",
		"git::https://hunter2@git.example.com/a.git":         "git::https://(sensitive)@git.example.com/a.git",
		"https://hunter2:x-oauth-basic@example.com":          "https://(sensitive)@example.com",
		"https://robot:hun@ter2@example.com/a":               "https://(sensitive)@example.com/a",
		"ssh://git:hunter2@example.com/a":                    "ssh://(sensitive)@example.com/a",
		"postgres://u:hunter2@db:5432/x?sslmode=require":     "postgres://(sensitive)@db:5432/x?sslmode=require",
		"https://example.com/a?b=1&access_token=hunter2&c=2": "https://example.com/a?b=1&access_token=(sensitive)&c=2",
		"https://example.com/a?X-Amz-Signature=hunter2#b":    "https://example.com/a?X-Amz-Signature=(sensitive)#b",
		"https://example.com/a?key=hunter2":                  "https://example.com/a?key=(sensitive)",
		"https://example.com/https://hunter2@example.com/a":  "https://example.com/https://(sensitive)@example.com/a",
		"https://example.com/?to=x://y/?token=z://hunter2":   "https://example.com/?to=x://y/?token=(sensitive)",
		"https://example.com/?a=b?token=hunter2&c=d":         "https://example.com/?a=b?token=(sensitive)&c=d",
		"a://b://1c://hunter2@example.com/":                  "a://b://1c://(sensitive)@example.com/",
		"https://example.com/#token=hunter2":                 "https://example.com/#token=(sensitive)",
		"sqlserver://db;user=sa;password=hunter2":            "sqlserver://db;user=sa;password=(sensitive)",
		"see https://hunter2@example.com, then go on":        "see https://(sensitive)@example.com, then go on",
		`source = "https://u:hunter2${var.x}@example.com"`:   `source = "https://(sensitive)@example.com"`,
	} {
		if got, n := MaskURLs(in); got != want || n != 1 {
			t.Errorf("MaskURLs(%q) = %q, %d; want %q and 1", in, got, n, want)
		}
		if got, n := MaskURLs(want); got != want || n != 0 {
			t.Errorf("masked again, %q is %q, %d; want it unchanged", want, got, n)
		}
	}
	for _, same := range []string{
		"", "token=hunter2", "git@example.com:a.git", "ssh://git@example.com/a", "git::ssh://git@example.com/a", "git+ssh://git@example.com/a",
		"oci://example.com:5000/a@sha256:00", "https://example.com/a@v1?ref=b", "https://example.com/?token=", "://@", "a://", "https://@example.com/a",
		`"https://${var.user}:${var.password}@example.com/?token=${var.token}"`,
	} {
		if got, n := MaskURLs(same); got != same || n != 0 {
			t.Errorf("MaskURLs(%q) = %q, %d; want it unchanged", same, got, n)
		}
	}
}

// An address of 1 MiB may consist of addresses alone. Each is looked at once.
func TestMaskURLsInsideOfEachOther(t *testing.T) {
	const one, masked = "a://u:p@h/?key=v&", "a://(sensitive)@h/?key=(sensitive)&"
	count := 1<<20/len(one) + 1
	pieces := 0
	for piece := range nestedURLs(strings.Repeat(one, count)) {
		if piece != one {
			t.Fatalf("piece %d is %q, want %q", pieces, piece, one)
		}
		pieces++
	}
	if pieces != count {
		t.Errorf("%d addresses were found, want %d", pieces, count)
	}
	if got, n := MaskURLs(strings.Repeat(one, count)); got != strings.Repeat(masked, count) || n != 2*count {
		t.Errorf("%d secrets were masked, want %d", n, 2*count)
	}
	for _, schemes := range []string{strings.Repeat("a://", 1<<18), strings.Repeat("://", 1<<18) + "a", strings.Repeat("a", 1<<20) + "://"} {
		if got, n := MaskURLs(schemes); got != schemes || n != 0 {
			t.Errorf("%.20q was masked in %d places, want it unchanged", schemes, n)
		}
	}
}

func FuzzMaskURLs(f *testing.F) {
	f.Add("https://u:p@h/?token=x")
	f.Fuzz(func(t *testing.T, text string) {
		once, _ := MaskURLs(text)
		if twice, n := MaskURLs(once); twice != once || n != 0 {
			t.Errorf("%q is masked as %q, and that as %q (%d)", text, once, twice, n)
		}
	})
}

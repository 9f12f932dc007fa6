package runtoken_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/runtoken"
	"github.com/terrier-iac/terrier/internal/secret"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func signer(t *testing.T, key string) *runtoken.Signer {
	t.Helper()
	s, err := runtoken.New(secret.New(key))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const ours, theirs = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

func TestATokenSaysWhoseItIs(t *testing.T) {
	want := runtoken.Claims{Run: "plan-1", Key: "uid-1", Namespace: "team-a", Expires: now.Add(time.Hour)}
	token, err := signer(t, ours).Issue(want)
	if err != nil || !runtoken.Is(token.Reveal()) {
		t.Fatalf("Issue() = %v", err)
	}
	got, err := signer(t, ours).Check(token.Reveal(), now) // as another controller does
	if err != nil || got != want {
		t.Errorf("Check() = %+v, %v; want %+v", got, err, want)
	}
	if text := fmt.Sprint(token); strings.Contains(text, "plan-1") || text == token.Reveal() {
		t.Errorf("a token prints as %q", text)
	}
}

// A foreign, a changed and an expired token are refused (RG-19).
func TestRefusals(t *testing.T) {
	claims := runtoken.Claims{Run: "plan-1", Key: "uid-1", Namespace: "team-a", Expires: now.Add(time.Hour)}
	issued, err := signer(t, ours).Issue(claims)
	if err != nil {
		t.Fatal(err)
	}
	claims.Namespace = "team-b"
	other, err := signer(t, theirs).Issue(claims)
	if err != nil {
		t.Fatal(err)
	}
	token := issued.Reveal()
	_, mac, _ := strings.Cut(strings.TrimPrefix(token, runtoken.Prefix), ".")
	said, _, _ := strings.Cut(strings.TrimPrefix(other.Reveal(), runtoken.Prefix), ".")
	for name, tt := range map[string]struct {
		token  string
		at     time.Time
		reason string
	}{
		"of another installation":             {other.Reveal(), now, runtoken.ReasonForeign},
		"the claims of another one":           {runtoken.Prefix + said + "." + mac, now, runtoken.ReasonForeign},
		"without a signature":                 {runtoken.Prefix + said + ".", now, runtoken.ReasonForeign},
		"cut off":                             {token[:len(token)-1], now, runtoken.ReasonForeign},
		"of another form":                     {"eyJhbGciOiJub25lIn0.e30.", now, runtoken.ReasonForeign},
		"none":                                {"", now, runtoken.ReasonForeign},
		"at the moment in which it expires":   {token, now.Add(time.Hour), runtoken.ReasonExpired},
		"long after the moment of its expiry": {token, now.Add(24 * time.Hour), runtoken.ReasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signer(t, ours).Check(tt.token, tt.at)
			if fault.Of(err) != fault.Denied || fault.Reason(err, "") != tt.reason {
				t.Errorf("Check() = %v, want Denied with %s", err, tt.reason)
			}
			if err != nil && tt.token != "" && strings.Contains(err.Error(), tt.token) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestATokenNeedsAnOwnerAndAnEnd(t *testing.T) {
	for name, c := range map[string]runtoken.Claims{
		"no run":       {Key: "uid", Namespace: "team-a", Expires: now},
		"no stack":     {Run: "plan-1", Namespace: "team-a", Expires: now},
		"no namespace": {Run: "plan-1", Key: "uid", Expires: now},
		"no end":       {Run: "plan-1", Key: "uid", Namespace: "team-a"},
	} {
		if _, err := signer(t, ours).Issue(c); err == nil {
			t.Errorf("%s: Issue() = nil, want an error", name)
		}
	}
	if _, err := runtoken.New(secret.New("short")); err == nil {
		t.Error("New() takes a short key")
	}
}

func FuzzCheck(f *testing.F) {
	s, err := runtoken.New(secret.New(ours))
	if err != nil {
		f.Fatal(err)
	}
	token, err := s.Issue(runtoken.Claims{Run: "r", Key: "s", Namespace: "n", Expires: now.Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token.Reveal())
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := s.Check(text, now); err == nil && text != token.Reveal() {
			t.Errorf("Check(%q) = nil", text)
		}
	})
}

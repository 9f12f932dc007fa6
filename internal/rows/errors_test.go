package rows

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/secret"
)

// Whatever a database or a driver says, no form of the password is passed on.
func TestWhatIsSaidHoldsNoPassword(t *testing.T) {
	const password = "c@nary/p\"ass:word %41?\n"
	c := Config{Password: secret.New(password)}
	for name, form := range map[string]string{
		"as it is":         password,
		"in a query":       url.QueryEscape(password),
		"in a path":        url.PathEscape(password),
		"in an address":    url.UserPassword("u", password).String(),
		"quoted":           strconv.Quote(password),
		"in a message":     "using password " + password + ": no",
		"more than once":   password + password,
		"after what is no": "\xff" + password,
	} {
		if got := said("the server said: "+form+" and more", c); strings.Contains(got, "nary") || !strings.Contains(got, "and more") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := said(strings.Repeat("é", 2000)+"\x1b[2J", c); len(got) > 1000 || strings.ContainsRune(got, 0x1b) {
		t.Errorf("a long text with an escape became %d bytes: %s", len(got), got)
	}
}

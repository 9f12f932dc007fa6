package pages

import (
	"net/url"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// SignIn is the page that signs a user in.
type SignIn struct {
	To      string           // the page after signing in
	Problem *command.Refusal // why the last try failed
	Lost    bool             // a form was sent after the session had ended
	Present string           // the user who is signed in already

	Code, Name string        // of a link: its code, and the user that it signs in
	Lasts      time.Duration // of the session; 0 if unknown

	Issuer     string // its name for users; empty without one
	IssuerDown bool
}

// Page is the page of s.
func (s SignIn) Page() Page {
	title := "Sign in"
	if s.Code != "" {
		title = "Continue as " + s.Name
	}
	return Page{Title: title, Section: "sign-in", Template: "signin", Data: s}
}

// IssuerPath leads to the issuer and from there to where the visitor wanted to go.
func (s SignIn) IssuerPath() string {
	return "/sign-in/issuer?" + url.Values{"to": {s.To}}.Encode()
}

// SignInProblem is err as the page shows it.
func SignInProblem(err error) *command.Refusal {
	return &command.Refusal{Error: ui.Capital(err.Error()), Kind: fault.Of(err), Reason: fault.Reason(err, ""), Hint: signInHints[fault.Reason(err, "")]}
}

var signInHints = map[string]string{
	access.ReasonUnknownUser: "Check that you copied the whole token, that it belongs to the cluster of this server, and that it has not expired.",
	"TokenTooLong":           "Use the token of a ServiceAccount, which is short: kubectl create token NAME. Programs that call the API may use longer tokens.",
	"GroupsTooLong":          "Configure the issuer to send fewer groups to this client: only those that roles are bound to.",
	"LinkUsed":               "Create another link: terrier ui",
	"IssuerDenied":           "Sign in again. If that does not help, ask the administrator of the issuer whether you may use this client.",
	"IssuerInvalid":          "Tell the operator of this server to correct the issuer or its settings.",
}

// Onward is a page that redirects to another one.
func Onward(to string) Page {
	return Page{Title: "One moment", Section: "sign-in", Template: "onward", Data: to}
}

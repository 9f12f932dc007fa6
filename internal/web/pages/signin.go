package pages

import (
	"net/url"
	"unicode"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
)

// SignIn is the page on which a browser becomes known.
type SignIn struct {
	To      string           // where it goes from there
	Problem *command.Refusal // why the last try failed
	Lost    bool             // a form was sent by somebody who was not signed in any more
	Present string           // who is signed in already

	Code, Name string // of a link: what opens it, and whom it lets in

	Issuer     string // what people call it; empty if there is none
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

// SignInProblem is err in the words in which it is shown.
func SignInProblem(err error) *command.Refusal {
	r, size := utf8.DecodeRuneInString(err.Error())
	sentence := string(unicode.ToUpper(r)) + err.Error()[size:]
	return &command.Refusal{Error: sentence, Kind: fault.Of(err), Reason: fault.Reason(err, ""), Hint: signInHints[fault.Reason(err, "")]}
}

var signInHints = map[string]string{
	access.ReasonUnknownUser: "See that you copied the whole token, that it is of the cluster that this server looks after, and that it has not expired.",
	"TokenTooLong":           "Use the token of a ServiceAccount, which is short: kubectl create token NAME. Programs that send their token themselves may have longer ones.",
	"GroupsTooLong":          "Have the issuer name fewer groups to this client: those that roles are bound to.",
	"LinkUsed":               "Ask for another one: terrier ui",
	"IssuerDenied":           "Sign in again. If that does not help, ask whoever looks after the issuer whether you may use this client.",
	"IssuerInvalid":          "Tell whoever looks after this server: the issuer, or what is set for it, has to be corrected.",
}

// Onward is a page that goes on to another one by itself.
func Onward(to string) Page {
	return Page{Title: "One moment", Section: "sign-in", Template: "onward", Data: to}
}

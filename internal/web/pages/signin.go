package pages

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/login"
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

// Tokens are the tokens for the registry.
type Tokens interface {
	List(context.Context) ([]regtoken.Token, error)
	Get(ctx context.Context, id string) (regtoken.Token, error)
	Revoke(ctx context.Context, id, by string) (regtoken.Token, error)
}

var errNoTokens = fault.New(fault.Missing, "NoRegistry", errors.New("this server has no registry of modules and providers"))

// loginView asks a user whether a command line gets a token.
type loginView struct {
	Name   string // of the user
	Fields url.Values
	Lasts  time.Duration
	Until  ui.Moment
	Port   string // at which the command line listens
}

// Login asks whether a command line on the computer of the visitor gets a token.
func Login(v *Visit) (Page, error) {
	if v.Backend.Tokens == nil {
		return Page{}, errNoTokens
	}
	r, err := login.Parse(v.Query)
	if err != nil {
		return Page{}, err
	}
	return Page{Title: "A token for the command line", Section: "sign-in", Template: "login", LeadsTo: r.Origin(), Data: loginView{
		Name: v.User.Name, Fields: r.Values(), Lasts: v.Backend.LoginLife, Until: ui.Moment{Now: v.Now, At: v.Now.Add(v.Backend.LoginLife)}, Port: r.Port(),
	}}, nil
}

// DecideLogin carries out the decision of the visitor.
func DecideLogin(v *Visit) (Done, error) {
	if v.Backend.Tokens == nil {
		return Done{}, errNoTokens
	}
	r, err := login.Parse(v.Form)
	if err != nil {
		return Done{}, err
	}
	if strings.HasPrefix(v.User.Name, access.OwnUsers) {
		return Done{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("a part of this server gets no token"))
	}
	e := query.AuditEntry{What: query.AuditLoginDeclined, Details: map[string]string{"redirect": r.Redirect}}
	switch v.Form.Get("decision") {
	case "decline":
		return Done{Page: &Page{Title: "No token was created", Section: "sign-in", Template: "login_declined"}}, v.Record(e)
	case "confirm":
	default:
		return Done{}, fault.New(fault.Invalid, login.ReasonInvalid, errors.New("the form has no decision: confirm or decline"))
	}
	e.What = query.AuditLoginConfirmed
	if err := v.Record(e); err != nil {
		return Done{}, err
	}
	code, err := v.Backend.Codes.Make(r, v.User)
	return Done{To: r.Answer(code)}, err
}

// tokensView is what the page of tokens shows.
type tokensView struct {
	Now   time.Time
	Rows  []tokenRow
	Pager ui.Pager
	Empty *ui.Empty
}

type tokenRow struct {
	regtoken.Token
	Pill   ui.Pill
	Revoke string // address of the form, empty if the token has ended
}

func canOf(v *Visit) regtoken.Can {
	return func(x access.Request) error {
		if v.Can(x) {
			return nil
		}
		return fault.New(fault.Denied, access.ReasonAccessDenied, fmt.Errorf("%s may not see or revoke this token", v.User.Name))
	}
}

// TokenList shows the tokens that the visitor may see and revoke.
func TokenList(v *Visit) (Page, error) {
	page := Page{Title: "Tokens for the registry", Section: "tokens", Template: "tokens"}
	d := tokensView{Now: v.Now}
	if v.Backend.Tokens == nil {
		d.Empty = &ui.Empty{Title: "No registry", Text: "This server has no registry of modules and providers, and so no tokens for it."}
		page.Data = d
		return page, nil
	}
	all, err := v.Backend.Tokens.List(v.Context)
	if err == nil {
		all, err = regtoken.Visible(all, v.User, canOf(v))
	}
	if err != nil {
		return page, err
	}
	offset := ui.CountIn(v.Query.Get("offset"))
	for _, t := range all[min(offset, len(all)):min(offset+pageRows, len(all))] {
		row := tokenRow{Token: t, Pill: ui.NewPill(ui.ToneOK, "check", "Active"), Revoke: ui.PathOf("tokens", t.ID, "revoke")}
		switch {
		case !t.Revoked.IsZero():
			row.Pill, row.Revoke = ui.NewPill(ui.ToneBad, "cross", "Revoked"), ""
		case t.Former:
			row.Pill = ui.NewPill(ui.ToneBad, "cross", "Namespace deleted")
		case !t.Active(v.Now):
			row.Pill, row.Revoke = ui.NewPill(ui.ToneIdle, "minus", "Expired"), ""
		}
		d.Rows = append(d.Rows, row)
	}
	d.Pager = ui.NewPager(v.Path, v.Query, offset, len(d.Rows), pageRows, len(all), "token")
	if len(all) == 0 {
		d.Empty = &ui.Empty{Title: "No tokens", Text: "A token lets tofu and terraform read modules and providers of this registry. To get one for your command line, with the name of this server:", Command: "tofu login HOST"}
	}
	page.Data = d
	return page, nil
}

var _ = says(map[Said]string{"token-revoked": "The token is revoked. The registry refuses it from now on."})

// RevokeToken revokes a token.
func RevokeToken(v *Visit) (Done, error) {
	if v.Backend.Tokens == nil {
		return Done{}, errNoTokens
	}
	_, err := Revoke(v.Context, v.Backend.Tokens, v.Names["id"], v.User, canOf(v), v.Record)
	return Done{To: "/tokens", Said: "token-revoked"}, err
}

// Revoke revokes a token in the name of a user who may, after the audit log names it. A
// token that the user may not see does not exist for that user.
func Revoke(ctx context.Context, all Tokens, id string, u access.User, can regtoken.Can, audit func(query.AuditEntry) error) (regtoken.Token, error) {
	t, err := all.Get(ctx, id)
	if err != nil {
		return t, err
	}
	if err := regtoken.Manage(t, u, can); err != nil {
		return regtoken.Token{}, err
	}
	if err := audit(TokenEntry(query.AuditTokenRevoked, t)); err != nil {
		return regtoken.Token{}, err
	}
	return all.Revoke(ctx, id, u.Name)
}

// TokenEntry is an entry of the audit log about a token.
func TokenEntry(what query.AuditWhat, t regtoken.Token) query.AuditEntry {
	details := map[string]string{"expires": t.Expires.Format(time.RFC3339), "may": t.May()}
	if t.User != "" {
		details["user"] = t.User
	}
	return query.AuditEntry{What: what, Object: query.AuditObject{Kind: "RegistryToken", Namespace: t.Namespace, Name: t.Name, UID: t.ID}, Details: details}
}

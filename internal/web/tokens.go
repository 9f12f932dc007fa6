package web

import (
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/login"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// tokenAPI is the rows of tokens for the registry. Users see and revoke their own, and
// those of namespaces where they may publish.
type tokenAPI struct {
	*gate
	tokens Tokens // nil without a registry
	audit  *auditor
}

func (a tokenAPI) routes() []route {
	op := func(id, summary string, fails ...fault.Kind) operation {
		return operation{id: id, area: "registry", summary: summary, fails: append(fails, fault.Missing, fault.Later)}
	}
	revoke := acts(a.gate, api+"/registry/tokens/:id/revoke", nil, op("revokeRegistryToken", "Revokes a token. It is refused from then on."), a.revoke)
	revoke.door = known // the handler decides, by what the token is for
	return []route{
		reads(a.gate, api+"/registry/tokens", known, nil, op("listRegistryTokens", "Lists the tokens for the registry, newest first: those of the caller, and those of namespaces where the caller may update terraforms/registry. Who may do so in all namespaces gets all of them."), a.list),
		acts(a.gate, inNamespace+"/registry/tokens", right("update", access.ResourceRegistry), op("createRegistryToken", "Creates a token that may read modules and providers of one namespace, or read and publish them. The answer is the only place that has the token.", fault.Conflict), a.create),
		revoke,
	}
}

func (a tokenAPI) ready() error {
	if a.tokens == nil {
		return errNoRegistry()
	}
	return nil
}

func (a tokenAPI) can(c call) regtoken.Can {
	return func(x access.Request) error { return a.auth.Authorize(c.ctx(), userOf(c.Context), x) }
}

func (a tokenAPI) list(c call) (list[regtoken.Token], error) {
	if err := a.ready(); err != nil {
		return listOf[regtoken.Token](nil), nil
	}
	all, err := a.tokens.List(c.ctx())
	if err != nil {
		return list[regtoken.Token]{}, err
	}
	return listed(regtoken.Visible(all, userOf(c.Context), a.can(c)))
}

func (a tokenAPI) create(c call, _ command.Person, b command.NewRegistryToken) (command.MadeRegistryToken, error) {
	if err := a.ready(); err != nil {
		return command.MadeRegistryToken{}, err
	}
	t, text, err := a.tokens.Create(c.ctx(), regtoken.Wanted{
		Name: b.Name, Namespace: c.Param("namespace"), Write: b.Write, By: userOf(c.Context).Name, Life: time.Duration(b.LifeSeconds) * time.Second,
	})
	if err != nil {
		return command.MadeRegistryToken{}, err
	}
	if err := recordCreated(c.Context, a.audit, a.tokens, t, ""); err != nil {
		return command.MadeRegistryToken{}, err
	}
	return command.MadeRegistryToken{Token: t, Secret: text.Reveal()}, nil
}

// recordCreated has the audit log name a new token before a user gets it. A token that it
// does not name is revoked.
func recordCreated(c *gin.Context, a *auditor, all Tokens, t regtoken.Token, who string) error {
	e := pages.TokenEntry(query.AuditTokenCreated, t)
	e.Who = who
	err := a.record(c, e)
	if err != nil {
		_, undone := all.Revoke(c.Request.Context(), t.ID, t.By)
		err = errors.Join(err, undone)
	}
	return err
}

func (a tokenAPI) revoke(c call, _ command.Person, _ none) (regtoken.Token, error) {
	if err := a.ready(); err != nil {
		return regtoken.Token{}, err
	}
	return pages.Revoke(c.ctx(), a.tokens, c.Param("id"), userOf(c.Context), a.can(c), func(e query.AuditEntry) error { return a.audit.record(c.Context, e) })
}

// tokenRoutes are the rows of browsers for tokens, and those of "tofu login": its page, and
// the endpoint that the command line sends its code to.
func (p pageRows) tokenRoutes() []route {
	return []route{
		p.page("/tokens", known, nil, pages.TokenList),
		p.action("/tokens/:id/revoke", known, nil, pages.RevokeToken),
		p.page(login.AuthorizePath, known, nil, pages.Login),
		p.action(login.AuthorizePath, known, nil, pages.DecideLogin),
		{method: http.MethodPost, path: login.TokenPath, door: open, body: exchangeBytes, handle: p.exchange.answer},
	}
}

// exchangeBytes bounds the form of a command line.
const exchangeBytes = 16 << 10

// tokenEndpoint exchanges the code of a command line for a token.
type tokenEndpoint struct {
	tokens Tokens // nil without a registry
	life   time.Duration
	codes  *login.Codes
	audit  *auditor
	log    *slog.Logger
}

// granted is the answer of RFC 6749.
type granted struct {
	Token   string `json:"access_token"`
	Type    string `json:"token_type"`
	Expires int    `json:"expires_in"` // seconds
}

func (e tokenEndpoint) answer(c *gin.Context) {
	user, refusal := e.exchange(c)
	if refusal != nil {
		e.refuse(c, user, refusal)
		return
	}
	name := "tofu login, " + c.Request.Host + ", " + e.audit.now().UTC().Format(time.DateOnly)
	t, text, err := e.tokens.Create(c.Request.Context(), regtoken.Wanted{Name: name, User: user, Life: e.life})
	if err == nil {
		err = recordCreated(c, e.audit, e.tokens, t, user.Name)
	}
	if err != nil {
		refusal := &login.Error{Code: login.ServerError, Description: "internal error of the server; its log has the request ID " + c.GetString(keyRequest)}
		if k := fault.Of(err); k != fault.Broken {
			refusal.Description = err.Error()
		}
		e.log.Error("token not created", "request", c.GetString(keyRequest), "user", user.Name, "err", err)
		e.refuse(c, user, refusal)
		return
	}
	c.JSON(http.StatusOK, granted{text.Reveal(), "Bearer", int(t.Expires.Sub(t.Created) / time.Second)})
}

// exchange is the user who confirmed that the command line gets a token.
func (e tokenEndpoint) exchange(c *gin.Context) (access.User, *login.Error) {
	invalid := func(why string) (access.User, *login.Error) {
		return access.User{}, &login.Error{Code: login.InvalidRequest, Description: why}
	}
	if e.tokens == nil {
		return access.User{}, &login.Error{Code: login.Unavailable, Description: "this server has no registry of modules and providers"}
	}
	if kind, _, err := mime.ParseMediaType(c.GetHeader("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return invalid("the body is not a form: its Content-Type is not application/x-www-form-urlencoded")
	}
	if c.GetHeader("Authorization") != "" || c.Request.URL.RawQuery != "" {
		return invalid("the parameters belong into the form, and the client has no secret")
	}
	if err := c.Request.ParseForm(); err != nil {
		return invalid("the form cannot be read, or is too large")
	}
	return e.codes.Exchange(c.Request.PostForm)
}

// refuse answers as RFC 6749 has it. The audit log names the user if the code was good once.
func (e tokenEndpoint) refuse(c *gin.Context, user access.User, r *login.Error) {
	if more, ok := e.audit.refusals.take(user.Name, e.audit.now()); ok {
		_ = e.audit.record(c, query.AuditEntry{ // record logs the error; no token is given in any case
			What: query.AuditLoginRefused, Who: user.Name, Why: r.Description, Outcome: r.Code,
			Details: map[string]string{"address": addressOf(c.Request), "unrecorded": unrecorded(more)},
		})
	}
	status := http.StatusBadRequest
	switch r.Code {
	case login.ServerError:
		status = http.StatusInternalServerError
	case login.Unavailable:
		status = http.StatusNotFound
	}
	c.AbortWithStatusJSON(status, r)
}

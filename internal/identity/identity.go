// Package identity says who a run is: what a stack asks for, what the operator allows it,
// the claims of the tokens of its runs, and what providers read of them.
//
// A stack asks for audiences and roles. It has no say in who it is: every claim of a token
// is made of what the controller knows. The package holds no keys and signs nothing, which
// package issuer does, and it knows neither files nor clocks.
//
// Start reading at Request, then at Claims.
package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Annotation is where a stack asks for the identity of its runs.
const Annotation = "terrier.dev/identity"

// Phase is the part of a run that says what it may change.
type Phase string

// The phases.
const (
	Plan  Phase = "plan"  // the run reads: plans, drift checks, previews
	Apply Phase = "apply" // the run may change resources: applies, destroys, scripts, break-glass commands
)

// PhaseOf is the phase of a run that may change resources, or that may not.
func PhaseOf(writes bool) Phase {
	if writes {
		return Apply
	}
	return Plan
}

// phases are all of them.
func phases() []Phase { return []Phase{Plan, Apply} }

// Request is what a stack asks for. Each part is for one system that the runs sign in to.
type Request struct {
	AWS        *AWS        `json:"aws,omitempty"`
	GCP        *GCP        `json:"gcp,omitempty"`
	Azure      *Azure      `json:"azure,omitempty"`
	Vault      *Vault      `json:"vault,omitempty"`
	Kubernetes *Kubernetes `json:"kubernetes,omitempty"`
	Tokens     []Token     `json:"tokens,omitempty"` // for anything else
}

// AWS is a role that the runs assume with AssumeRoleWithWebIdentity.
type AWS struct {
	Role     string `json:"role"`               // ARN
	PlanRole string `json:"planRole,omitempty"` // of runs that change nothing; Role if empty
	Audience string `json:"audience,omitempty"` // sts.amazonaws.com if empty
}

// GCP is workload identity federation of Google Cloud.
type GCP struct {
	Provider           string `json:"provider"`                     // projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME
	ServiceAccount     string `json:"serviceAccount,omitempty"`     // that the runs act as; empty gives them the rights of the pool's principal
	PlanServiceAccount string `json:"planServiceAccount,omitempty"` // of runs that change nothing; ServiceAccount if empty
	Audience           string `json:"audience,omitempty"`           // that of the provider if empty
}

// Azure is an application or managed identity with a federated credential.
type Azure struct {
	Tenant       string `json:"tenant"`                 // the ID of the directory
	Client       string `json:"client"`                 // the ID of the application
	PlanClient   string `json:"planClient,omitempty"`   // of runs that change nothing; Client if empty
	Subscription string `json:"subscription,omitempty"` // the ID of the subscription
	Audience     string `json:"audience,omitempty"`     // api://AzureADTokenExchange if empty
}

// Vault is a role of the JWT auth method of Vault or OpenBao.
type Vault struct {
	Address   string `json:"address"`             // https://HOST[:PORT]
	Role      string `json:"role"`                // of the auth method
	PlanRole  string `json:"planRole,omitempty"`  // of runs that change nothing; Role if empty
	Mount     string `json:"mount,omitempty"`     // path of the auth method; jwt if empty
	Namespace string `json:"namespace,omitempty"` // of the server
	Audience  string `json:"audience,omitempty"`  // Address if empty
	Login     bool   `json:"login,omitempty"`     // the controller signs in, and the run gets the token of the session
}

// At returns the path of the auth method and the role of a phase.
func (v Vault) At(p Phase) (mount, role string) {
	return or(v.Mount, mountVault), in(p, v.PlanRole, v.Role)
}

// Kubernetes is a cluster that trusts the issuer.
type Kubernetes struct {
	Server   string `json:"server"`             // https://HOST[:PORT]
	CA       string `json:"ca,omitempty"`       // PEM; the authorities of the system if empty
	Audience string `json:"audience,omitempty"` // Server if empty
}

// Token is a token for a system that has no part of its own here.
type Token struct {
	Name         string `json:"name"` // of its file
	Audience     string `json:"audience"`
	PlanAudience string `json:"planAudience,omitempty"` // of runs that change nothing; Audience if empty
}

// Defaults of audiences, and of the path of Vault's auth method.
const (
	audienceAWS   = "sts.amazonaws.com"
	audienceAzure = "api://AzureADTokenExchange"
	mountVault    = "jwt"
)

// maxRequest bounds the text of a request, in bytes, and maxTokens its tokens.
const (
	maxRequest = 64 << 10
	maxTokens  = 16
	maxText    = 512
)

// Parse reads the JSON of a request.
func Parse(text []byte) (*Request, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("has %d bytes, more than %d", len(text), maxRequest)
	}
	var r Request
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		return nil, fmt.Errorf("is no request for an identity: %w", err)
	}
	if in.More() {
		return nil, errors.New("is more than one object")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return &r, nil
}

// Forms of what a request names.
var (
	roleARN        = lazy(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$`)
	gcpProvider    = lazy(`^projects/[0-9]{1,20}/locations/global/workloadIdentityPools/[a-z0-9-]{1,64}/providers/[a-z0-9-]{1,64}$`)
	serviceAccount = lazy(`^[a-z0-9.-]{1,200}@[a-z0-9.-]{1,200}$`)
	guid           = lazy(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	vaultRole      = lazy(`^[A-Za-z0-9_.-]{1,128}$`)
	vaultPath      = lazy(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	tokenName      = lazy(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)
)

// lazy compiles an expression when it is first used: a supervisor uses none.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// field is one text of a request: where it is, and its form.
type field struct {
	name, value string
	optional    bool
	form        *regexp.Regexp
	want        string
}

func (f field) check() error {
	switch {
	case f.value == "" && f.optional:
		return nil
	case f.value == "":
		return fmt.Errorf("%s is missing", f.name)
	case len(f.value) > maxText || !f.form.MatchString(f.value):
		return fmt.Errorf("%s: %.80q is not %s", f.name, f.value, f.want)
	default:
		return nil
	}
}

// check returns the first error of a request.
func (r Request) check() error {
	var fields []field
	if a := r.AWS; a != nil {
		const want = "the ARN of a role, such as arn:aws:iam::123456789012:role/deploy"
		fields = append(fields, field{"aws.role", a.Role, false, roleARN(), want}, field{"aws.planRole", a.PlanRole, true, roleARN(), want})
	}
	if g := r.GCP; g != nil {
		const want = "the address of a service account"
		fields = append(fields,
			field{"gcp.provider", g.Provider, false, gcpProvider(), "projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME"},
			field{"gcp.serviceAccount", g.ServiceAccount, g.PlanServiceAccount == "", serviceAccount(), want}, field{"gcp.planServiceAccount", g.PlanServiceAccount, true, serviceAccount(), want})
	}
	if a := r.Azure; a != nil {
		const want = "an ID such as 00000000-0000-0000-0000-000000000000"
		fields = append(fields, field{"azure.tenant", a.Tenant, false, guid(), want}, field{"azure.client", a.Client, false, guid(), want},
			field{"azure.planClient", a.PlanClient, true, guid(), want}, field{"azure.subscription", a.Subscription, true, guid(), want})
	}
	if v := r.Vault; v != nil {
		fields = append(fields, field{"vault.role", v.Role, false, vaultRole(), "the name of a role"}, field{"vault.planRole", v.PlanRole, true, vaultRole(), "the name of a role"},
			field{"vault.mount", v.Mount, true, vaultPath(), "the path of an auth method"}, field{"vault.namespace", v.Namespace, true, vaultPath(), "the path of a namespace"})
	}
	for _, f := range fields {
		if err := f.check(); err != nil {
			return err
		}
	}
	if r.Vault != nil {
		if err := checkURL("vault.address", r.Vault.Address, true); err != nil {
			return err
		}
	}
	if r.Kubernetes != nil {
		if err := checkURL("kubernetes.server", r.Kubernetes.Server, false); err != nil {
			return err
		}
	}
	return r.checkTokens()
}

// checkTokens checks the audiences, and that the tokens are of different names.
func (r Request) checkTokens() error {
	if len(r.Tokens) > maxTokens {
		return fmt.Errorf("tokens: there are %d, more than %d", len(r.Tokens), maxTokens)
	}
	taken := map[string]bool{"aws": true, "gcp": true, "azure": true, "vault": true, "kubernetes": true}
	for i, t := range r.Tokens {
		f := field{fmt.Sprintf("tokens[%d].name", i), t.Name, false, tokenName(), "a name of lower-case letters, digits and hyphens"}
		if err := f.check(); err != nil {
			return err
		}
		if taken[t.Name] {
			return fmt.Errorf("%s: %q is taken", f.name, t.Name)
		}
		taken[t.Name] = true
	}
	uses := slices.Concat(r.Uses(Plan), r.Uses(Apply))
	if len(uses) == 0 {
		return errors.New("asks for nothing: name aws, gcp, azure, vault, kubernetes or tokens, or remove it")
	}
	for _, u := range uses {
		if u.Audience == "" {
			return fmt.Errorf("the audience of %s is missing", u.Name)
		}
		if len(u.Audience) > maxText || strings.ContainsFunc(u.Audience, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return fmt.Errorf("the audience of %s: %.80q is not a text of visible ASCII characters", u.Name, u.Audience)
		}
	}
	return nil
}

// checkURL refuses what is no URL of a server. Where plain is true, it may be reached without
// TLS, as a Vault beside the runs often is.
func checkURL(name, text string, plain bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !plain) || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || len(text) > maxText {
		return fmt.Errorf("%s: %.80q is not https://HOST or https://HOST:PORT", name, text)
	}
	return nil
}

// useKubernetes is the name of the use of a cluster.
const useKubernetes = "kubernetes"

// Use is one token of a run, and what it is for.
type Use struct {
	Name     string // of its file: aws, gcp, azure, vault, kubernetes, or that of a Token
	Audience string
	Role     string // as the rules of the operator name it; empty if the verifier chooses it
}

// Uses are the tokens of runs in a phase.
func (r Request) Uses(p Phase) []Use {
	var uses []Use
	if a := r.AWS; a != nil {
		uses = append(uses, Use{"aws", or(a.Audience, audienceAWS), in(p, a.PlanRole, a.Role)})
	}
	if g := r.GCP; g != nil {
		uses = append(uses, Use{"gcp", or(g.Audience, "https://iam.googleapis.com/"+g.Provider), in(p, g.PlanServiceAccount, g.ServiceAccount)})
	}
	if a := r.Azure; a != nil {
		uses = append(uses, Use{"azure", or(a.Audience, audienceAzure), a.Tenant + "/" + in(p, a.PlanClient, a.Client)})
	}
	if r.Vault != nil {
		uses = append(uses, r.vaultUse(p))
	}
	if k := r.Kubernetes; k != nil {
		uses = append(uses, Use{useKubernetes, or(k.Audience, k.Server), ""})
	}
	for _, t := range r.Tokens {
		uses = append(uses, Use{t.Name, in(p, t.PlanAudience, t.Audience), ""})
	}
	return uses
}

// Login is the use by which a run signs in to Vault, if the controller does that for it.
func (r Request) Login(p Phase) (Use, bool) {
	if r.Vault == nil || !r.Vault.Login {
		return Use{}, false
	}
	return r.vaultUse(p), true
}

func (r Request) vaultUse(p Phase) Use {
	return Use{"vault", or(r.Vault.Audience, r.Vault.Address), r.Vault.role(p)}
}

// role names the role of an auth method as rules do: ADDRESS/[NAMESPACE/]MOUNT/ROLE.
func (v Vault) role(p Phase) string {
	at := v.Address
	if v.Namespace != "" {
		at += "/" + v.Namespace
	}
	return at + "/" + or(v.Mount, mountVault) + "/" + in(p, v.PlanRole, v.Role)
}

// in is what counts in a phase.
func in(p Phase, plan, always string) string {
	if p == Plan {
		return or(plan, always)
	}
	return always
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

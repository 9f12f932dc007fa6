package identity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// File is a file that a run has in its directory of identities.
type File struct {
	Name    string
	Content []byte
}

// TokenFile is the name of the file of a token.
func (u Use) TokenFile() string { return u.Name + ".token" }

// Session is how a cloud calls the session of a run, for its own logs. Names of roles bound
// it to 64 characters; the ID of the run is always whole.
func Session(namespace, name, run string) string {
	const most = 64
	s := strings.Map(func(c rune) rune {
		if c == '-' || c == '.' || c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			return c
		}
		return '-'
	}, namespace+"."+name)
	run = run[:min(len(run), most-2)]
	if room := most - len(run) - 1; len(s) > room {
		s = s[:room]
	}
	return s + "." + run
}

// Environ is what providers read, beside the files: variables that say where their tokens
// are. dir is where the run has its directory of identities.
func (r Request) Environ(p Phase, dir, session string) map[string]string {
	env := map[string]string{}
	at := func(name string) string { return path.Join(dir, name+".token") }
	if a := r.AWS; a != nil {
		env["AWS_WEB_IDENTITY_TOKEN_FILE"] = at("aws")
		env["AWS_ROLE_ARN"] = in(p, a.PlanRole, a.Role)
		env["AWS_ROLE_SESSION_NAME"] = session
	}
	if r.GCP != nil {
		env["GOOGLE_APPLICATION_CREDENTIALS"] = path.Join(dir, fileGCP)
	}
	if a := r.Azure; a != nil {
		env["ARM_USE_OIDC"] = "true"
		env["ARM_OIDC_TOKEN_FILE_PATH"] = at("azure")
		env["ARM_TENANT_ID"] = a.Tenant
		env["ARM_CLIENT_ID"] = in(p, a.PlanClient, a.Client)
		if a.Subscription != "" {
			env["ARM_SUBSCRIPTION_ID"] = a.Subscription
		}
	}
	if v := r.Vault; v != nil {
		env["VAULT_ADDR"] = v.Address
		if v.Namespace != "" {
			env["VAULT_NAMESPACE"] = v.Namespace
		}
	}
	if r.Kubernetes != nil {
		env["KUBE_CONFIG_PATH"] = path.Join(dir, fileKubernetes)
	}
	for _, t := range r.Tokens {
		env[variable(t.Name)] = at(t.Name)
	}
	return env
}

// variable is the variable of the environment that says where the token of a name is.
func variable(name string) string {
	return "TERRIER_TOKEN_FILE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Variables of a run that is signed in to Vault: the token of its session, and that the provider
// is to use this one, which ends with the run, and not one below it.
const (
	EnvVaultToken = "VAULT_TOKEN"
	EnvVaultChild = "TERRAFORM_VAULT_SKIP_CHILD_TOKEN"
)

// EnvVaultJWT is a variable with the token itself: the provider of Vault reads no file.
const EnvVaultJWT = "TERRAFORM_VAULT_AUTH_JWT"

// Values are the variables that hold a token itself, of those that were issued. A program
// that goes on keeps the value with which it began.
func (r Request) Values(issued []Issued) map[string]string {
	env := map[string]string{}
	for _, i := range issued {
		if i.Name == "vault" && r.Vault != nil && !r.Vault.Login {
			env[EnvVaultJWT] = i.Token
		}
	}
	return env
}

// stronger are variables by which a provider would pass over the identity, silently.
func (r Request) stronger() []string {
	var names []string
	if r.AWS != nil {
		names = append(names, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE")
	}
	if r.GCP != nil {
		names = append(names, "GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON", "GOOGLE_OAUTH_ACCESS_TOKEN")
	}
	if r.Azure != nil {
		names = append(names, "ARM_CLIENT_SECRET", "ARM_CLIENT_CERTIFICATE", "ARM_CLIENT_CERTIFICATE_PATH", "ARM_OIDC_TOKEN", "ARM_OIDC_REQUEST_TOKEN", "ARM_OIDC_REQUEST_URL", "ARM_USE_MSI", "ARM_USE_CLI")
	}
	if r.Vault != nil {
		names = append(names, EnvVaultToken, EnvVaultChild, EnvVaultJWT)
	}
	if r.Kubernetes != nil {
		names = append(names, "KUBE_TOKEN", "KUBE_CONFIG_PATHS", "KUBE_HOST")
	}
	return names
}

// Variables are the names that a request has for itself: those that it sets, and those by
// which a provider would pass over them.
func (r Request) Variables() []string {
	names := r.stronger()
	for name := range r.Environ(Apply, "/", "") {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Conflict returns why the environment of a stack and a request exclude each other; nil if
// they do not.
func (r Request) Conflict(env map[string]string) error {
	var both []string
	for _, name := range r.Variables() {
		if _, ok := env[name]; ok {
			both = append(both, name)
		}
	}
	if len(both) == 0 {
		return nil
	}
	return fmt.Errorf("the environment of the stack sets %s, and so the identity would not count: remove it from the environment, or its part from the annotation %s", strings.Join(both, ", "), Annotation)
}

// The files beside the tokens.
const (
	fileGCP        = "gcp.json"
	fileKubernetes = "kubeconfig"
)

// Files are what providers read beside the tokens. dir is where the run has its directory of
// identities. None of them is secret.
func (r Request) Files(p Phase, dir string) ([]File, error) {
	var files []File
	if g := r.GCP; g != nil {
		content, err := json.MarshalIndent(g.credentials(p, dir), "", "  ")
		if err != nil {
			return nil, err
		}
		files = append(files, File{fileGCP, content})
	}
	if k := r.Kubernetes; k != nil {
		content, err := json.MarshalIndent(k.config(dir), "", "  ") // which is YAML as well
		if err != nil {
			return nil, err
		}
		files = append(files, File{fileKubernetes, content})
	}
	return files, nil
}

// externalAccount is the file of credentials that the libraries of Google read for a
// workload outside of Google Cloud.
type externalAccount struct {
	Type             string `json:"type"`
	Audience         string `json:"audience"`
	SubjectTokenType string `json:"subject_token_type"`
	TokenURL         string `json:"token_url"`
	Impersonation    string `json:"service_account_impersonation_url,omitempty"`
	Source           struct {
		File string `json:"file"`
	} `json:"credential_source"`
}

func (g GCP) credentials(p Phase, dir string) externalAccount {
	a := externalAccount{
		Type: "external_account", Audience: "//iam.googleapis.com/" + g.Provider,
		SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt", TokenURL: "https://sts.googleapis.com/v1/token",
	}
	a.Source.File = path.Join(dir, "gcp.token")
	if account := in(p, g.PlanServiceAccount, g.ServiceAccount); account != "" {
		a.Impersonation = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
	}
	return a
}

// named is an entry of a list in a kubeconfig.
type named map[string]any

func (k Kubernetes) config(dir string) map[string]any {
	const name = "terrier"
	cluster := map[string]any{"server": k.Server}
	if k.CA != "" {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString([]byte(k.CA))
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []named{{"name": name, "cluster": cluster}},
		"users":    []named{{"name": name, "user": map[string]any{"tokenFile": path.Join(dir, "kubernetes.token")}}},
		"contexts": []named{{"name": name, "context": map[string]any{"cluster": name, "user": name}}},
	}
}

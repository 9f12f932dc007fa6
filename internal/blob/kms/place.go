package kms

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// The schemes of URLs of keys.
const (
	Vault  = "vault"
	AWS    = "awskms"
	Google = "gcpkms"
	Azure  = "azurekv"

	// The same services, where the URLs of gocloud.dev/secrets have another form than those
	// above. A Place has none of these schemes.
	hashiVault    = "hashivault"
	azureKeyVault = "azurekeyvault"
)

// forms are what a URL of each scheme looks like.
var forms = map[string]string{
	Vault:         "vault://HOST/transit/KEY",
	AWS:           "awskms://KEY?region=REGION",
	Google:        "gcpkms://projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY",
	Azure:         "azurekv://VAULT/KEY",
	hashiVault:    "hashivault://KEY?engine=transit",
	azureKeyVault: "azurekeyvault://VAULT.vault.azure.net/keys/KEY",
}

// Place says which key of which service wraps keys, and how to reach it.
type Place struct {
	Scheme      string
	Key         string // its name at the service; for Vault, below Mount
	Mount       string // of Vault's transit engine
	Endpoint    *url.URL
	Region      string            // of AWS
	FIPS        bool              // of AWS: its endpoints that are validated
	DualStack   bool              // of AWS: its endpoints that have IPv6, too
	Context     map[string]string // of AWS: what a key is encrypted with, and decrypted
	Version     string            // of Azure: the one that wraps; empty for the newest
	CAFile      string
	Credentials string
	Role        string // of Vault's auth method for Kubernetes
	Auth        string // mount of that method
	JWTFile     string // token of a ServiceAccount, for that method
	TokenFile   string // of Vault
	Namespace   string // of Vault
	TokenIn     string // the variable that has the token of Vault, unless a file or a role gives one
}

// parameters are those of each scheme. They include those of gocloud.dev/secrets, but for
// settings of its clients.
var parameters = map[string][]string{
	Vault:         {"auth", "ca-file", "jwt-file", "namespace", "plain-http", "role", "token-file"},
	AWS:           {"awssdk", "ca-file", "context_*", "credentials", "dualstack", "endpoint", "fips", "region"},
	Google:        {"ca-file", "credentials", "endpoint"},
	Azure:         {"ca-file", "credentials", "endpoint"},
	hashiVault:    {"auth", "ca-file", "engine", "jwt-file", "namespace", "role", "token-file"},
	azureKeyVault: {"algorithm", "ca-file", "credentials", "endpoint"},
}

// Parse reads the URL of a key. What it does not say comes from the environment.
func Parse(text string, environ func(string) string) (Place, error) {
	u, given, err := cloud.ReadPlace(text, parameters)
	if err != nil {
		return Place{}, err
	}
	p := Place{
		Scheme: u.Scheme, Key: strings.Trim(u.Host+u.Path, "/"), Credentials: cloud.FromEnvironment, Auth: "kubernetes", JWTFile: accountToken, TokenIn: "VAULT_TOKEN",
	}
	switch u.Scheme {
	case Vault:
		p.Endpoint = &url.URL{Scheme: "https", Host: u.Host}
		p.Mount, p.Key = cutLast(strings.Trim(u.Path, "/"))
	case hashiVault:
		err = p.atServer(environ)
	case azureKeyVault:
		err = p.inVault(u.Host, strings.Split(strings.Trim(u.Path, "/"), "/"))
	}
	if err != nil {
		return Place{}, err
	}
	for _, parameter := range given {
		if err := p.set(parameter.Name, parameter.Value); err != nil {
			return Place{}, err
		}
	}
	if err := p.complete(environ, forms[u.Scheme]); err != nil {
		return Place{}, err
	}
	return p, nil
}

// atServer takes from the environment what a URL hashivault:// says nothing about: the server,
// and who signs in there. These are the variables of gocloud.dev and of the client of Vault.
func (p *Place) atServer(environ func(string) string) error {
	name := "VAULT_SERVER_URL"
	if environ(name) == "" {
		name = "VAULT_ADDR"
	}
	if environ(name) == "" {
		return fmt.Errorf("the server is missing, which %s takes from the environment: set VAULT_ADDR, or write %s", hashiVault+"://", forms[Vault])
	}
	at, err := cloud.Endpoint(environ(name))
	if err != nil || strings.Trim(at.Path, "/") != "" || at.RawQuery != "" {
		return fmt.Errorf("the variable %s is not https://HOST", name)
	}
	p.Scheme, p.Mount, p.Endpoint = Vault, "transit", &url.URL{Scheme: at.Scheme, Host: at.Host}
	p.Namespace, p.CAFile = environ("VAULT_NAMESPACE"), environ("VAULT_CACERT")
	if environ("VAULT_SERVER_TOKEN") != "" {
		p.TokenIn = "VAULT_SERVER_TOKEN"
	}
	return nil
}

// inVault reads the path of a URL azurekeyvault://, which is the identifier of a key at the
// service. A vault of the public cloud has the name that it has in azurekv://, so that both
// URLs are one key.
func (p *Place) inVault(host string, path []string) error {
	if len(path) < 2 || len(path) > 3 || path[0] != "keys" {
		return badName(forms[azureKeyVault])
	}
	p.Scheme, p.Key = Azure, strings.TrimSuffix(host, "."+azureDomain)+"/"+path[1]
	if len(path) == 3 {
		p.Version = path[2]
	}
	return nil
}

func badName(form string) error {
	return fmt.Errorf("the name of the key is missing or wrong: write %s", form)
}

func cutLast(path string) (before, last string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

func (p *Place) set(name, value string) (err error) {
	if of, ok := strings.CutPrefix(name, contextPrefix); ok {
		if of == "" {
			return errors.New("context_= names nothing: write context_NAME=VALUE")
		}
		if p.Context == nil {
			p.Context = map[string]string{}
		}
		p.Context[of] = value
		return nil
	}
	switch name {
	case "algorithm":
		if value != azureAlgorithm {
			return errors.New("algorithm= can only be " + azureAlgorithm + ", which is the default: remove it")
		}
	case "auth":
		p.Auth = strings.Trim(value, "/")
	case "awssdk":
		if value != "v1" && value != "v2" {
			return errors.New("awssdk= is neither v1 nor v2: remove it, since it changes nothing here")
		}
	case "ca-file":
		p.CAFile = value
	case "credentials":
		if p.Credentials = value; value != cloud.FromEnvironment && value != cloud.FromMetadata {
			return errors.New("credentials= is neither environment nor metadata")
		}
	case "dualstack":
		p.DualStack, err = yes(name, value)
	case "endpoint":
		p.Endpoint, err = cloud.Endpoint(value)
	case "engine":
		p.Mount = strings.Trim(value, "/")
	case "fips":
		p.FIPS, err = yes(name, value)
	case "jwt-file":
		p.JWTFile = value
	case "namespace":
		p.Namespace = value
	case "plain-http":
		var plain bool
		if plain, err = yes(name, value); plain {
			p.Endpoint.Scheme = "http"
		}
	case "region":
		p.Region = value
	case "role":
		p.Role = value
	case "token-file":
		p.TokenFile = value
	}
	return err
}

// contextPrefix is that of the parameters that are the encryption context of AWS.
const contextPrefix = "context_"

func yes(name, value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, errors.New(name + "= is neither true nor false")
	}
	return value == "true", nil
}

var (
	plain     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	plainPath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*$`)
	awsKey    = regexp.MustCompile(`^(arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:)?(key/)?(alias/)?[A-Za-z0-9/_-]+$`)
	googleKey = regexp.MustCompile(`^projects/[A-Za-z0-9:._-]+/locations/[a-z0-9-]+/keyRings/[A-Za-z0-9_-]+/cryptoKeys/[A-Za-z0-9_-]+$`)
)

// complete takes from the environment what the URL does not say.
func (p *Place) complete(environ func(string) string, form string) error {
	ok, host := true, ""
	switch p.Scheme {
	case Vault:
		ok = p.Endpoint.Host != "" && plainPath.MatchString(p.Mount) && plain.MatchString(p.Key) && plainPath.MatchString(p.Auth)
	case AWS:
		found := awsKey.FindStringSubmatch(p.Key)
		if ok = found != nil; !ok {
			break
		}
		for _, region := range []string{found[2], environ("AWS_REGION"), environ("AWS_DEFAULT_REGION")} {
			if p.Region == "" {
				p.Region = region
			}
		}
		if !plain.MatchString(p.Region) {
			return errors.New("the region of the key is missing: add ?region=REGION, or set AWS_REGION")
		}
		host = p.awsHost()
	case Google:
		ok, host = googleKey.MatchString(p.Key), "cloudkms.googleapis.com"
	case Azure:
		vault, key, _ := strings.Cut(p.Key, "/")
		if ok, host = plain.MatchString(vault) && plain.MatchString(key), vault; !strings.Contains(vault, ".") {
			host += "." + azureDomain
		}
		ok = ok && (p.Version == "" || plain.MatchString(p.Version))
	}
	if !ok {
		return badName(form)
	}
	if p.Endpoint == nil {
		p.Endpoint = &url.URL{Scheme: "https", Host: host}
	}
	return nil
}

// awsHost is the host of AWS KMS in the region of the key.
func (p Place) awsHost() string {
	service, domain := "kms", "amazonaws.com"
	if p.FIPS {
		service = "kms-fips"
	}
	china := strings.HasPrefix(p.Region, "cn-")
	switch {
	case p.DualStack && china:
		domain = "api.amazonwebservices.com.cn"
	case p.DualStack:
		domain = "api.aws"
	case china:
		domain = "amazonaws.com.cn"
	}
	return service + "." + p.Region + "." + domain
}

// String is the key without its parameters, but for the context, without which it does not
// open what it wrapped.
func (p Place) String() string {
	if p.Scheme == Vault {
		return p.Scheme + "://" + p.Endpoint.Host + "/" + p.Mount + "/" + p.Key
	}
	text := p.Scheme + "://" + p.Key
	if len(p.Context) > 0 {
		all := url.Values{}
		for name, value := range p.Context {
			all.Set(contextPrefix+name, value)
		}
		text += "?" + all.Encode()
	}
	return text
}

// service is what the scheme is called.
func (p Place) service() string {
	return map[string]string{Vault: "OpenBao or Vault", AWS: "AWS KMS", Google: "Google Cloud KMS", Azure: "Azure Key Vault"}[p.Scheme]
}

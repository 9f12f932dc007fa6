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
)

// forms are what a URL of each scheme looks like.
var forms = map[string]string{
	Vault:  "vault://HOST/transit/KEY",
	AWS:    "awskms://KEY?region=REGION",
	Google: "gcpkms://projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY",
	Azure:  "azurekv://VAULT/KEY",
}

// Place says which key of which service wraps keys, and how to reach it.
type Place struct {
	Scheme      string
	Key         string // its name at the service; for Vault, below Mount
	Mount       string // of Vault's transit engine
	Endpoint    *url.URL
	Region      string // of AWS
	CAFile      string
	Credentials string
	Role        string // of Vault's auth method for Kubernetes
	Auth        string // mount of that method
	JWTFile     string // token of a ServiceAccount, for that method
	TokenFile   string // of Vault
	Namespace   string // of Vault
}

// parameters are those of each scheme.
var parameters = map[string][]string{
	Vault:  {"auth", "ca-file", "jwt-file", "namespace", "plain-http", "role", "token-file"},
	AWS:    {"ca-file", "credentials", "endpoint", "region"},
	Google: {"ca-file", "credentials", "endpoint"},
	Azure:  {"ca-file", "credentials", "endpoint"},
}

// Parse reads the URL of a key. What it does not say comes from the environment.
func Parse(text string, environ func(string) string) (Place, error) {
	u, given, err := cloud.ReadPlace(text, parameters)
	if err != nil {
		return Place{}, err
	}
	p := Place{Scheme: u.Scheme, Key: strings.Trim(u.Host+u.Path, "/"), Credentials: cloud.FromEnvironment, Auth: "kubernetes", JWTFile: accountToken}
	if p.Scheme == Vault {
		p.Endpoint = &url.URL{Scheme: "https", Host: u.Host}
		p.Mount, p.Key = cutLast(strings.Trim(u.Path, "/"))
	}
	for _, parameter := range given {
		if err := p.set(parameter.Name, parameter.Value); err != nil {
			return Place{}, err
		}
	}
	if err := p.complete(environ); err != nil {
		return Place{}, err
	}
	return p, nil
}

func cutLast(path string) (before, last string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

func (p *Place) set(name, value string) (err error) {
	switch name {
	case "auth":
		p.Auth = strings.Trim(value, "/")
	case "ca-file":
		p.CAFile = value
	case "credentials":
		if p.Credentials = value; value != cloud.FromEnvironment && value != cloud.FromMetadata {
			return errors.New("credentials= is neither environment nor metadata")
		}
	case "endpoint":
		p.Endpoint, err = cloud.Endpoint(value)
	case "jwt-file":
		p.JWTFile = value
	case "namespace":
		p.Namespace = value
	case "plain-http":
		if value != "true" && value != "false" {
			return errors.New("plain-http= is neither true nor false")
		}
		if value == "true" {
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

var (
	plain     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	plainPath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*$`)
	awsKey    = regexp.MustCompile(`^(arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:)?(key/)?(alias/)?[A-Za-z0-9/_-]+$`)
	googleKey = regexp.MustCompile(`^projects/[A-Za-z0-9:._-]+/locations/[a-z0-9-]+/keyRings/[A-Za-z0-9_-]+/cryptoKeys/[A-Za-z0-9_-]+$`)
)

// complete takes from the environment what the URL does not say.
func (p *Place) complete(environ func(string) string) error {
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
		host = "kms." + p.Region + ".amazonaws.com"
		if strings.HasPrefix(p.Region, "cn-") {
			host += ".cn"
		}
	case Google:
		ok, host = googleKey.MatchString(p.Key), "cloudkms.googleapis.com"
	case Azure:
		vault, key, _ := strings.Cut(p.Key, "/")
		if ok, host = plain.MatchString(vault) && plain.MatchString(key), vault; !strings.Contains(vault, ".") {
			host += ".vault.azure.net"
		}
	}
	if !ok {
		return fmt.Errorf("the name of the key is missing or wrong: write %s", forms[p.Scheme])
	}
	if p.Endpoint == nil {
		p.Endpoint = &url.URL{Scheme: "https", Host: host}
	}
	return nil
}

// String is the key without its parameters.
func (p Place) String() string {
	if p.Scheme == Vault {
		return p.Scheme + "://" + p.Endpoint.Host + "/" + p.Mount + "/" + p.Key
	}
	return p.Scheme + "://" + p.Key
}

// service is what the scheme is called.
func (p Place) service() string {
	return map[string]string{Vault: "OpenBao or Vault", AWS: "AWS KMS", Google: "Google Cloud KMS", Azure: "Azure Key Vault"}[p.Scheme]
}

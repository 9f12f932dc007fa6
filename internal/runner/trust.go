package runner

import (
	"net/url"
	"os"
)

// trustVariables are by which programs of a run find the certificates that they
// trust: the engine and its providers, git, curl, and the libraries of clouds.
// Each of them replaces the certificates of the system, so the file that they
// name holds those as well.
var trustVariables = []string{"SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}

// systemBundles are where systems keep the certificates that they trust, in the
// order in which Go looks for them.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// systemTrust is the first of these files that there is; empty on a system that
// trusts nothing.
func systemTrust() []byte {
	for _, name := range systemBundles {
		if data, err := os.ReadFile(name); err == nil {
			return data
		}
	}
	return nil
}

// secrets are the passwords in the environment that the operator sets: those of
// proxies are part of their addresses, which may lack a scheme. Other values are
// not hidden.
func (p Platform) secrets() []string {
	var found []string
	for _, value := range p.Env {
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			u, err = url.Parse("http://" + value)
		}
		if err != nil || u.User == nil {
			continue
		}
		if password, ok := u.User.Password(); ok && password != "" {
			found = append(found, password, u.User.String())
		}
	}
	return found
}

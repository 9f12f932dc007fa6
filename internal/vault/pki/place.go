package pki

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
)

// accountToken is the token of the ServiceAccount of a pod.
const accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Parse reads vault://MOUNT/ROLE?role=ROLE&auth=PATH&jwt-file=FILE&token-file=FILE&ttl=TIME. The
// program signs in with the token of its ServiceAccount as a role, or with a token in a file.
func Parse(text string) (Source, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "vault" || u.User != nil || u.Fragment != "" {
		return Source{}, fmt.Errorf("%.200q is not vault://MOUNT/ROLE?role=ROLE", text)
	}
	path := strings.Trim(u.Host+u.Path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return Source{}, fmt.Errorf("%.200q names no role of a PKI: write vault://MOUNT/ROLE", text)
	}
	s := Source{Mount: path[:i], Role: path[i+1:]}
	by := vault.SignIn{Method: vault.Kubernetes}
	file, tokenFile := accountToken, ""
	for name, values := range u.Query() {
		value := values[0]
		switch name {
		case "role":
			by.Role = value
		case "auth":
			by.Path = strings.TrimPrefix(strings.Trim(value, "/"), "auth/")
		case "jwt-file":
			file = value
		case "token-file":
			tokenFile = value
		case "ttl":
			if s.Life, err = time.ParseDuration(value); err != nil || s.Life < time.Minute {
				return Source{}, fmt.Errorf("ttl=%s is no time of a minute or more", value)
			}
		default:
			return Source{}, fmt.Errorf("%s= is not known: there are role, auth, jwt-file, token-file and ttl", name)
		}
	}
	if tokenFile != "" {
		by.Method, file = vault.Token, tokenFile
	} else if by.Role == "" {
		return Source{}, fmt.Errorf("%.200q names no role to sign in with: add role=ROLE, or token-file=FILE", text)
	}
	s.SignIn = func(context.Context) (vault.SignIn, error) {
		content, err := os.ReadFile(file) // it is rotated
		if err != nil {
			return by, fmt.Errorf("reading the token to sign in to the Vault with: %w", err)
		}
		is := by
		is.Identity = secret.New(strings.TrimSpace(string(content)))
		return is, nil
	}
	return s, nil
}

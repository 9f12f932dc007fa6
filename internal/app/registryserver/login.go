package registryserver

import (
	"net/url"
	"strconv"
	"strings"
)

// loginPorts reads FIRST-LAST, the ports at which a command line may wait for its code.
func loginPorts(text string) (first, last int, err error) {
	from, to, ok := strings.Cut(text, "-")
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if !ok || err1 != nil || err2 != nil || first < 1024 || last > 65535 || first > last {
		return 0, 0, usage("--login-ports %q is not FIRST-LAST, with ports from 1024 to 65535", text)
	}
	return first, last, nil
}

// services are what discovery names besides modules and providers: the identity provider
// that "tofu login" gets its token from. The file of rights says what such a token may do.
func (c Config) services() (map[string]any, error) {
	if c.LoginClient == "" && c.LoginAuthz == "" && c.LoginToken == "" {
		return nil, nil
	}
	if c.LoginClient == "" || c.LoginAuthz == "" || c.LoginToken == "" {
		return nil, usage("--login-client-id, --login-authz-url and --login-token-url need each other")
	}
	for name, text := range map[string]string{"login-authz-url": c.LoginAuthz, "login-token-url": c.LoginToken} {
		if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
			return nil, usage("--%s is not an https address without a user", name)
		}
	}
	first, last, err := loginPorts(c.LoginPorts)
	if err != nil {
		return nil, err
	}
	login := map[string]any{
		"client": c.LoginClient, "grant_types": []string{"authz_code"}, "authz": c.LoginAuthz, "token": c.LoginToken, "ports": []int{first, last},
	}
	if len(c.LoginScopes) > 0 {
		login["scopes"] = c.LoginScopes
	}
	return map[string]any{"login.v1": login}, nil
}

package browse

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// The address at which the certificate authority of the server is downloaded, and the name
// and the type of the file.
const (
	Authority     = "/registry/ca.crt"
	AuthorityFile = "terrier-ca.crt"
	AuthorityType = "application/x-pem-file"
)

// ErrNoAuthority is the answer of a server whose certificate is of another authority.
func ErrNoAuthority() error {
	return fault.New(fault.Missing, "NoAuthority", errors.New("the certificate of this server is not of an authority of its own: ask its operator which authority to trust"))
}

// anonymous is the visitor of a registry alone that needs no token to be read.
const anonymous = "anonymous"

// clientView is what an engine on the computer of the visitor needs, step by step. Each step
// works as it is, once it is pasted where its text says.
type clientView struct {
	Authority string // the address of the certificate authority; empty if the server has none of its own
	File      string // its name in the directory for downloads
	Trust     string // the command by which an engine on Linux trusts it
	Login     string // the command that gets a token; empty if there is none
	Config    string // the CLI configuration
	Script    string // the command that writes it with a token, where no command gets one
	CI        string // the part of a CLI configuration with a token, for jobs
	Create    string // the command that creates that token
}

// hostName matches the names of servers that can stand in a shell script.
var hostName = regexp.MustCompile(`^([0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$`)

func clientOf(v *pages.Visit) clientView {
	host := v.Host
	if !hostName.MatchString(host) { // what a client sends as the name is no text of ours
		host = "HOST"
	}
	c := clientView{Config: CLIConfiguration(host, "")}
	if len(v.Backend.Authority) > 0 {
		c.Authority, c.File = Authority, AuthorityFile
		c.Trust = `export SSL_CERT_FILE="$HOME/Downloads/` + AuthorityFile + `"`
	}
	switch {
	case v.Backend.Logins:
		c.Login = "tofu login " + host
		if !v.Backend.Alone {
			c.CI, c.Create = credentials(host, "TOKEN"), "terrier registry tokens create --namespace NAMESPACE --name ci"
		}
	case v.User.Name != anonymous:
		c.Config, c.Script = "", "cat > ~/.tofurc <<END\n"+CLIConfiguration(host, `$(cat "$TERRIER_TOKEN_FILE")`)+"END"
	}
	return c
}

// CLIConfiguration is the CLI configuration of a client of the registry at a host: providers
// of this host come from it directly, and all others through its mirror. An empty token is
// left out: "tofu login" has one.
func CLIConfiguration(host, token string) string {
	text := fmt.Sprintf(`provider_installation {
  direct {
    include = ["%[1]s/*/*"]
  }
  network_mirror {
    url     = "https://%[1]s/v1/mirror/"
    exclude = ["%[1]s/*/*"]
  }
}
`, host)
	if token != "" {
		text = credentials(host, token) + text
	}
	return text
}

func credentials(host, token string) string {
	return "credentials \"" + host + "\" {\n  token = \"" + token + "\"\n}\n"
}

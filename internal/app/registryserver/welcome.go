package registryserver

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/terrier-iac/terrier/internal/web/pages/browse"
)

// welcome says where everything is, and what a client has to have.
func welcome(r Ready, program string) string {
	var b strings.Builder
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-12s%s\n", name, value)
		}
	}
	b.WriteString("\n")
	row("address", r.URL)
	row("pages", r.URL+"/registry")
	row("storage", r.Storage)
	row("rights", r.Rights)
	row("token", r.Token)
	row("authority", r.CA)
	row("metrics", r.Metrics)

	u, err := url.Parse(r.URL)
	if err != nil {
		return b.String()
	}
	from := "a token that the file of rights knows"
	if r.Token != "" {
		from = "the content of " + r.Token
	}
	fmt.Fprintf(&b, "\nA client has in its CLI configuration, ~/.tofurc or ~/.terraformrc, with %s in place of TOKEN:\n\n", from)
	for line := range strings.Lines(browse.CLIConfiguration(u.Host, "TOKEN")) {
		b.WriteString("  " + line)
	}
	if r.CA != "" {
		fmt.Fprintf(&b, "\nIt has to trust the authority. To try it out: export SSL_CERT_FILE=%s\n", r.CA)
	}
	fmt.Fprintf(&b, "\nTo publish a module:\n\n  export TERRIER_SERVER=%s", r.URL)
	if r.CA != "" {
		fmt.Fprintf(&b, " TERRIER_SERVER_CA=%s", r.CA)
	}
	if r.Token != "" {
		fmt.Fprintf(&b, " TERRIER_TOKEN_FILE=%s", r.Token)
	} else {
		b.WriteString(" TERRIER_TOKEN=TOKEN")
	}
	fmt.Fprintf(&b, "\n  %s module push DIR --namespace example --name network --system aws --version 1.0.0\n", program)
	fmt.Fprintf(&b, "\nA configuration uses it with: source = %q\n\nready\n", u.Host+"/example/network/aws")
	return b.String()
}

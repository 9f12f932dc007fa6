package registryserver

import (
	"fmt"
	"net/url"
	"strings"
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
	row("storage", r.Storage)
	row("rights", r.Rights)
	row("token", r.Token)
	row("authority", r.CA)
	row("metrics", r.Metrics)

	u, err := url.Parse(r.URL)
	if err != nil {
		return b.String()
	}
	token := "TOKEN"
	if r.Token != "" {
		token = "$(cat " + r.Token + ")"
	}
	b.WriteString("\nA client has in its CLI configuration (~/.tofurc or ~/.terraformrc):\n\n")
	fmt.Fprintf(&b, "  credentials %q {\n    token = %q # %s\n  }\n", u.Host, "TOKEN", orElse(r.Token, "one that the file of rights knows"))
	if u.Scheme == "https" {
		fmt.Fprintf(&b, "  provider_installation {\n    network_mirror {\n      url = %q\n    }\n  }\n", r.URL+"/v1/mirror/")
	}
	if r.CA != "" {
		fmt.Fprintf(&b, "\nIt has to trust the authority %s.\nTo try it out: export SSL_CERT_FILE=%[1]s\n", r.CA)
	}
	fmt.Fprintf(&b, "\nTo publish a module:\n\n  export TERRIER_SERVER=%s", r.URL)
	if r.CA != "" {
		fmt.Fprintf(&b, " TERRIER_SERVER_CA=%s", r.CA)
	}
	if r.Token != "" {
		fmt.Fprintf(&b, " TERRIER_TOKEN_FILE=%s", r.Token)
	} else {
		fmt.Fprintf(&b, " TERRIER_TOKEN=%s", token)
	}
	fmt.Fprintf(&b, "\n  %s module push DIR --namespace example --name network --system aws --version 1.0.0\n", program)
	fmt.Fprintf(&b, "\nA configuration uses it with: source = %q\n\nready\n", u.Host+"/example/network/aws")
	return b.String()
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return "the content of " + text
}

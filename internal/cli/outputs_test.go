package cli

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/record"
)

// When the server does not say what came from Secrets, outputs are masked, and the
// command says why and how to show them.
func TestOutputsSaysWhyTheyAreMasked(t *testing.T) {
	e := newEstate(t)
	e.cluster.Apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: network-outputs, annotations: {terrier.dev/public-outputs: "cidr"}}
stringData: {cidr: 10.0.0.0/8}
`)
	e.dialogue(t, []line{{args: "outputs network", says: []string{"cidr = \"10.0.0.0/8\""}, never: "masked"}})
	e.records[record.Secrets(string(e.object(t).UID))] = "damaged"
	for _, args := range []string{"outputs network", "outputs network -o json"} {
		got := e.run(t, strings.Fields(args)...)
		if got.code != 0 || strings.Contains(got.out, "10.0.0.0") || !strings.Contains(got.err, "every value is masked") || !strings.Contains(got.err, "--show-secrets") {
			t.Errorf("terrier %s ends with %d: %s%s", args, got.code, got.out, got.err)
		}
		if strings.HasSuffix(args, "json") && !strings.Contains(got.out, `"masked": "every value is masked`) {
			t.Errorf("terrier %s says %s, want the reason", args, got.out)
		}
	}
	e.dialogue(t, []line{{args: "outputs network --show-secrets", says: []string{"cidr = \"10.0.0.0/8\""}, never: "masked"}})
}

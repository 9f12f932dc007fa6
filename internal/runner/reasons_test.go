package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
)

// A text is cut after its secrets are hidden: half a secret is not recognised.
func TestSecretsAreHiddenBeforeATextIsCut(t *testing.T) {
	const secret = "canary-0123456789-canary"
	r := &recorder{hide: plan.NewRedactor([]string{secret})}
	for at := range 300 {
		r.output.last = strings.Repeat(".", at) + secret + strings.Repeat(".", 300-at)
		if got := r.running(time.Time{}); strings.ContainsAny(got, "0123456789") {
			t.Fatalf("with the secret at %d: running() = %s", at, got)
		}
	}
}

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/query"
)

// tenantReasons is docs/tenant-reasons.md: every reason that a registry, a
// template, a tenant or an object of one can have, from what the commands say.
func tenantReasons() string {
	var b strings.Builder
	b.WriteString(`# What is the matter with my tenants?

<!-- Made from the reasons by go test ./internal/cli -update. -->

Every condition, every resource in ` + "`status.resources`" + ` and every row in ` + "`status.rowErrors`" + ` has a reason. ` + "`terrier tenant`" + ` and
` + "`terrier rows`" + ` say the same beside what they show. The [guide](tenants.md) says how all of it fits together.
`)
	for _, words := range query.AllTenantReasons() {
		fmt.Fprintf(&b, "\n## %s\n\n| reason | what it means | what a person can do |\n| --- | --- | --- |\n", words.What)
		for _, reason := range slices.Sorted(maps.Keys(words.Of)) {
			s := words.Of[reason]
			do := s.Do
			if do == "" {
				do = "Nothing."
			}
			fmt.Fprintf(&b, "| <a id=\"%s\"></a>`%s` | %s | %s |\n", strings.ToLower(reason), reason, s.Means, do)
		}
	}
	return b.String()
}

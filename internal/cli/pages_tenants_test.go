package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/query/meaning"
)

// tenantReasons is docs/tenant-reasons.md: every reason of a registry, a
// template, a tenant or an object of a tenant.
func tenantReasons() string {
	var b strings.Builder
	b.WriteString(`# Reasons of tenants

<!-- Generated from the reasons by go test ./internal/cli -update. -->

Every condition, every resource in ` + "`status.resources`" + ` and every row in ` + "`status.rowErrors`" + ` has a reason. ` + "`terrier tenant`" + ` and
` + "`terrier rows`" + ` show the same explanations. The [guide](tenants.md) describes how the parts work together.
`)
	for _, words := range meaning.TenantReasons() {
		fmt.Fprintf(&b, "\n## %s\n\n| reason | meaning | next step |\n| --- | --- | --- |\n", words.What)
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

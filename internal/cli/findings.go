package cli

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
)

// findings shows what policies find in the pending plan, the most severe first. It shows
// nothing if there is nothing.
func findings(s *sheet, v *query.Verdict) {
	for _, g := range v.BySeverity() {
		s.heading("Findings of policies, severity: " + g.Name)
		for _, f := range g.Findings {
			s.line("- %s %s: %s", f.Policy, paint(s.colour, bold, query.EffectText(f)), f.Rule)
			for _, line := range wrap(f.Message, 92) {
				s.line("  %s", line)
			}
			if f.Counts() == policy.Hold && f.Approval != nil {
				s.line("  needs %s", f.Approval)
			}
			if f.Link != "" {
				s.line("  %s", f.Link)
			}
		}
	}
	if v != nil && v.More > 0 {
		s.line("  %s", fmt.Sprintf("and %d more", v.More))
	}
}

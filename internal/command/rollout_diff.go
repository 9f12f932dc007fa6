package command

import (
	"strings"

	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/plan"
)

// DiffLine is one line of either generation of a template.
type DiffLine = plan.Line

// diffShown bounds how much of two templates is compared line by line: the work
// grows with the product of both. What is larger is shown as one replaced by the
// other.
const diffShown = 1500

// Diff is what an undo changes in the template, as YAML. Lines that both
// generations have are left out beyond a few around each change; one line with
// the text "…" stands for them.
func (u Undoing) Diff() ([]DiffLine, error) {
	was, err := specLines(u.was)
	if err != nil {
		return nil, err
	}
	becomes, err := specLines(u.spec)
	if err != nil {
		return nil, err
	}
	return folded(diffLines(was, becomes)), nil
}

func specLines(spec tenantsv1.TenantTemplateSpec) ([]string, error) {
	raw, err := yaml.Marshal(spec)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), nil
}

func diffLines(was, becomes []string) []DiffLine {
	return plan.CompareLines(was, becomes, func(was, becomes int) bool { return was > diffShown || becomes > diffShown })
}

// folded leaves out what is far from any change.
func folded(lines []DiffLine) []DiffLine {
	const around = 3
	near := make([]bool, len(lines))
	for i, l := range lines {
		for j := max(0, i-around); l.Sign != ' ' && j <= min(len(lines)-1, i+around); j++ {
			near[j] = true
		}
	}
	var out []DiffLine
	for i, l := range lines {
		switch {
		case near[i]:
			out = append(out, l)
		case i == 0 || near[i-1]:
			out = append(out, DiffLine{Sign: ' ', Text: "…"})
		}
	}
	return out
}

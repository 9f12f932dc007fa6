package service

import (
	"strings"

	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// DiffLine is one line of what a template says in either generation.
type DiffLine struct {
	Sign byte // + - or a space for what both have
	Text string
}

// diffShown bounds how much of two templates is compared line by line: the work
// grows with the product of both. What is larger is shown as one replaced by the
// other.
const diffShown = 1500

// Diff is what going back changes in the template, as YAML. Lines that both
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

// diffLines is the shortest list of lines to take out and put in.
func diffLines(a, b []string) []DiffLine {
	var head, tail []DiffLine
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head, a, b = append(head, DiffLine{' ', a[0]}), a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail, a, b = append(tail, DiffLine{' ', a[len(a)-1]}), a[:len(a)-1], b[:len(b)-1]
	}
	out := append(head, changedLines(a, b)...)
	for i := len(tail) - 1; i >= 0; i-- {
		out = append(out, tail[i])
	}
	return out
}

func changedLines(a, b []string) (out []DiffLine) {
	if len(a) > diffShown || len(b) > diffShown {
		return append(signed('-', a), signed('+', b)...)
	}
	// same[i][j] is how many lines a[i:] and b[j:] have in common, in order.
	same := make([][]int16, len(a)+1)
	for i := range same {
		same[i] = make([]int16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				same[i][j] = same[i+1][j+1] + 1
			} else {
				same[i][j] = max(same[i+1][j], same[i][j+1])
			}
		}
	}
	for len(a) > 0 && len(b) > 0 {
		i, j := len(same)-1-len(a), len(same[0])-1-len(b)
		switch {
		case a[0] == b[0]:
			out, a, b = append(out, DiffLine{' ', a[0]}), a[1:], b[1:]
		case same[i+1][j] >= same[i][j+1]:
			out, a = append(out, DiffLine{'-', a[0]}), a[1:]
		default:
			out, b = append(out, DiffLine{'+', b[0]}), b[1:]
		}
	}
	return append(append(out, signed('-', a)...), signed('+', b)...)
}

func signed(sign byte, lines []string) []DiffLine {
	out := make([]DiffLine, len(lines))
	for i, l := range lines {
		out[i] = DiffLine{sign, l}
	}
	return out
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
			out = append(out, DiffLine{' ', "…"})
		}
	}
	return out
}

package plan

// Line is one line of two texts that were compared.
type Line struct {
	Sign byte // + - or a space for what both have
	Text string
}

// CompareLines says of each line of two texts whether it goes, comes or stays, by
// the longest list of lines that both have in the same order. The work grows with
// the product of what differs: where tooMuch says so of how many lines that are,
// one is shown as replaced by the other.
func CompareLines(before, after []string, tooMuch func(before, after int) bool) []Line {
	head := 0
	for head < min(len(before), len(after)) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < min(len(before), len(after))-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	b, a := before[head:len(before)-tail], after[head:len(after)-tail]
	out := signed(nil, ' ', before[:head])
	if tooMuch(len(b), len(a)) {
		out = signed(signed(out, '-', b), '+', a)
	} else {
		out = longest(out, b, a)
	}
	return signed(out, ' ', before[len(before)-tail:])
}

func signed(out []Line, sign byte, texts []string) []Line {
	for _, t := range texts {
		out = append(out, Line{sign, t})
	}
	return out
}

func longest(out []Line, b, a []string) []Line {
	// same[i][j] is how long the list is that b[i:] and a[j:] have in common.
	same := make([][]int32, len(b)+1)
	for i := range same {
		same[i] = make([]int32, len(a)+1)
	}
	for i := len(b) - 1; i >= 0; i-- {
		for j := len(a) - 1; j >= 0; j-- {
			if b[i] == a[j] {
				same[i][j] = same[i+1][j+1] + 1
			} else {
				same[i][j] = max(same[i+1][j], same[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(b) && j < len(a) {
		switch {
		case b[i] == a[j]:
			out, i, j = append(out, Line{' ', b[i]}), i+1, j+1
		case same[i+1][j] >= same[i][j+1]:
			out, i = append(out, Line{'-', b[i]}), i+1
		default:
			out, j = append(out, Line{'+', a[j]}), j+1
		}
	}
	return signed(signed(out, '-', b[i:]), '+', a[j:])
}

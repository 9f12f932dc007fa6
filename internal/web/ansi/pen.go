package ansi

import (
	"strconv"
	"strings"
)

// pen is how text looks. Colours are 1 to 16, the sixteen that a page has
// classes for; 0 is the page's own.
type pen struct {
	fore, back                                      uint8
	bold, faint, italic, underline, invert, crossed bool
}

// class lists the classes of a span; see log.css.
func (p pen) class() string {
	var list []string
	for _, c := range []struct {
		on   bool
		name string
	}{{p.bold, "a-bold"}, {p.faint, "a-faint"}, {p.italic, "a-italic"}, {p.underline, "a-under"}, {p.invert, "a-invert"}, {p.crossed, "a-cross"}} {
		if c.on {
			list = append(list, c.name)
		}
	}
	if p.fore > 0 {
		list = append(list, "a-f"+strconv.Itoa(int(p.fore)-1))
	}
	if p.back > 0 {
		list = append(list, "a-b"+strconv.Itoa(int(p.back)-1))
	}
	return strings.Join(list, " ")
}

// set takes over the parameters of one sequence.
func (p *pen) set(params string) {
	for rest := numbers(params); len(rest) > 0; {
		n := rest[0]
		rest = rest[1:]
		switch {
		case n == 38 || n == 48:
			var color uint8
			color, rest = wideColor(rest)
			if color == 0 {
				continue
			}
			if n == 38 {
				p.fore = color
			} else {
				p.back = color
			}
		case 30 <= n && n <= 37:
			p.fore = uint8(n - 29)
		case 40 <= n && n <= 47:
			p.back = uint8(n - 39)
		case 90 <= n && n <= 97:
			p.fore = uint8(n - 81)
		case 100 <= n && n <= 107:
			p.back = uint8(n - 91)
		default:
			p.style(n)
		}
	}
}

func (p *pen) style(n int) {
	switch n {
	case 0:
		*p = pen{}
	case 1:
		p.bold = true
	case 2:
		p.faint = true
	case 3:
		p.italic = true
	case 4:
		p.underline = true
	case 7:
		p.invert = true
	case 9:
		p.crossed = true
	case 22:
		p.bold, p.faint = false, false
	case 23:
		p.italic = false
	case 24:
		p.underline = false
	case 27:
		p.invert = false
	case 29:
		p.crossed = false
	case 39:
		p.fore = 0
	case 49:
		p.back = 0
	}
}

// maxParams is more than any program writes at once.
const maxParams = 32

// numbers reads parameters. A missing one is 0, and one that is not a number is
// ignored like an undefined one.
func numbers(params string) []int {
	var out []int
	for p := range strings.SplitSeq(params, ";") {
		if head, sub, found := strings.Cut(p, ":"); found {
			out = append(out, subNumbers(head, sub)...)
			continue
		}
		out = append(out, number(p))
	}
	return out[:min(len(out), maxParams)]
}

// subNumbers reads a parameter with parts of its own: 38:5:1, 38:2::255:0:0, or
// 4:3, where what matters is whether there is a line at all.
func subNumbers(head, sub string) []int {
	parts := strings.Split(sub, ":")
	if head == "4" {
		if parts[0] == "0" {
			return []int{24}
		}
		return []int{4}
	}
	if parts[0] == "2" && len(parts) == 5 {
		parts = append(parts[:1:1], parts[2:]...) // the second names a space of colours
	}
	out := []int{number(head)}
	for _, p := range parts {
		out = append(out, number(p))
	}
	return out
}

const unknownParam = -1

func number(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 255 {
		return unknownParam
	}
	return n
}

// wideColor reads what follows 38 or 48: 5 and an index, or 2 and red, green
// and blue. It returns what comes after.
func wideColor(list []int) (color uint8, rest []int) {
	switch {
	case len(list) >= 2 && list[0] == 5:
		if list[1] < 0 {
			return 0, list[2:]
		}
		return indexed(list[1]), list[2:]
	case len(list) >= 4 && list[0] == 2:
		return nearest(list[1], list[2], list[3]), list[4:]
	default:
		return 0, nil
	}
}

// indexed is the nearest of the sixteen to one of the 256.
func indexed(n int) uint8 {
	switch {
	case n < 16:
		return uint8(n + 1)
	case n >= 232:
		grey := (n-232)*10 + 8
		return nearest(grey, grey, grey)
	default:
		n -= 16
		level := func(v int) int {
			if v == 0 {
				return 0
			}
			return 55 + 40*v
		}
		return nearest(level(n/36), level(n/6%6), level(n%6))
	}
}

// palette is the sixteen, as terminals commonly have them.
var palette = [16][3]int{
	{0, 0, 0}, {205, 49, 49}, {13, 188, 121}, {229, 229, 16}, {36, 114, 200}, {188, 63, 188}, {17, 168, 205}, {229, 229, 229},
	{102, 102, 102}, {241, 76, 76}, {35, 209, 139}, {245, 245, 67}, {59, 142, 234}, {214, 112, 214}, {41, 184, 219}, {255, 255, 255},
}

// nearest is the one of the sixteen that is least far from a colour.
func nearest(r, g, b int) uint8 {
	best, far := 0, 1<<30
	for i, c := range palette {
		d := (c[0]-r)*(c[0]-r) + (c[1]-g)*(c[1]-g) + (c[2]-b)*(c[2]-b)
		if d < far {
			best, far = i, d
		}
	}
	return uint8(best + 1)
}

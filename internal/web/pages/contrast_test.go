package pages

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

var namedColour = regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)`)

// palettes are the colours that a sheet names, for both themes.
func palettes(t *testing.T, css string) (light, dark map[string]string) {
	t.Helper()
	light, dark = map[string]string{}, map[string]string{}
	for _, m := range namedColour.FindAllStringSubmatch(css, -1) {
		light[m[1]], dark[m[1]] = m[2], m[3]
	}
	if len(light) < 20 {
		t.Fatalf("found %d colours only", len(light))
	}
	return light, dark
}

// contrast is that of two colours, as WCAG 2 has it.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	if x < y {
		x, y = y, x
	}
	return (x + 0.05) / (y + 0.05)
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatalf("the colour %q: %v", hex, err)
	}
	part := func(shift uint) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

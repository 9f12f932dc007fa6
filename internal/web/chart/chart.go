// Package chart turns figures over time into the parts of an SVG, and the same
// figures into a table. It reads nothing and knows no template: a page gives it the
// figures, and the part "chart" draws what it returns. Start with Of and New.
package chart

import (
	"fmt"
	"math"
	"strings"

	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Series is one kind of figure, one for each bucket.
type Series struct {
	Name   string
	Tone   ui.Tone
	Values []float64
}

// Input is what is drawn.
type Input struct {
	ID      string // of the elements; unique on a page
	Title   string
	Buckets []string             // what each bucket is called in the table
	Marks   []string             // the label below each bucket; most are empty
	Series  []Series             // bars, one on top of the other
	Beside  bool                 // bars stand side by side: values do not add up
	Steps   []float64            // of the grid, ascending; 1, 2, 5, 10 and so on if empty
	Say     func(float64) string // a value in words
	Whole   bool                 // values are counts: the axis has no fractions
}

// SideBySide is in with its bars beside each other.
func (in Input) SideBySide() Input {
	in.Beside = true
	return in
}

// Chart is an SVG of W by H.
type Chart struct {
	ID, Title, Summary string
	W, H               int
	Bars               []Bar
	Grid               []Line
	Marks              []Mark
	Legend             []Key
	Rows               []Row
	None               bool // every value is zero
}

// Bar is one value.
type Bar struct {
	X, Y, W, H float64
	Tone       ui.Tone
	Text       string // under the pointer
}

// Line is a horizontal line with its value.
type Line struct {
	Y    float64
	X    int // where it begins
	Text string
}

// Mark is a label below the bars.
type Mark struct {
	X    float64
	Text string
}

// Key says what a colour means.
type Key struct {
	Name string
	Tone ui.Tone
}

// Row is the figures of one bucket.
type Row struct {
	Bucket string
	Values []string
}

// The size of a chart, and the room for its labels.
const (
	width  = 640
	height = 180
	left   = 68
	right  = 8
	top    = 10
	bottom = 22
	gap    = 0.2 // of a bucket, between two bars
	lines  = 4   // of the grid, about
)

// New lays out a chart.
func New(in Input) Chart {
	c := Chart{ID: in.ID, Title: in.Title, W: width, H: height}
	most := 0.0
	for i := range in.Buckets {
		most = max(most, in.stacked(i))
	}
	c.None = most == 0
	step := in.step(most / lines)
	ceiling := max(step, math.Ceil(most/step)*step)
	y := func(v float64) float64 { return round(float64(height-bottom) - v/ceiling*float64(height-bottom-top)) }
	for v := 0.0; v <= ceiling+step/2; v += step {
		c.Grid = append(c.Grid, Line{Y: y(v), X: left, Text: in.Say(v)})
	}
	wide := float64(width-left-right) / float64(max(1, len(in.Buckets)))
	for i, bucket := range in.Buckets {
		x, from := float64(left)+float64(i)*wide, 0.0
		row := Row{Bucket: bucket}
		for k, s := range in.Series {
			v := s.Values[i]
			row.Values = append(row.Values, in.Say(v))
			if v <= 0 {
				continue
			}
			b := Bar{X: round(x + wide*gap/2), W: round(wide * (1 - gap)), Y: y(from + v), Tone: s.Tone, Text: fmt.Sprintf("%s: %s %s", bucket, s.Name, in.Say(v))}
			b.H = round(y(from) - b.Y)
			if in.Beside {
				part := wide * (1 - gap) / float64(len(in.Series))
				b.X, b.W = round(x+wide*gap/2+float64(k)*part), round(part)
			} else {
				from += v
			}
			c.Bars = append(c.Bars, b)
		}
		c.Rows = append(c.Rows, row)
		if i < len(in.Marks) && in.Marks[i] != "" {
			c.Marks = append(c.Marks, Mark{X: round(x + wide/2), Text: in.Marks[i]})
		}
	}
	c.summarise(in)
	return c
}

// stacked is the height of the bars of a bucket.
func (in Input) stacked(i int) (tall float64) {
	for _, s := range in.Series {
		if in.Beside {
			tall = max(tall, s.Values[i])
		} else {
			tall += s.Values[i]
		}
	}
	return tall
}

// step is that of the grid, not less than v.
func (in Input) step(v float64) float64 {
	for _, s := range in.Steps {
		if s >= v {
			return s
		}
	}
	return nice(v, in.Whole)
}

// summarise says the chart in a sentence, for users who do not see it.
func (c *Chart) summarise(in Input) {
	var parts []string
	for _, s := range in.Series {
		most, at := 0.0, ""
		for i, v := range s.Values {
			if v > most {
				most, at = v, in.Buckets[i]
			}
		}
		k := Key{Name: s.Name, Tone: s.Tone}
		if most > 0 {
			parts = append(parts, fmt.Sprintf("%s: at most %s, %s", s.Name, in.Say(most), at))
		} else {
			parts = append(parts, s.Name+": none")
		}
		c.Legend = append(c.Legend, k)
	}
	c.Summary = strings.Join(parts, ". ") + "."
}

// nice is a step of a grid: 1, 2 or 5 and zeros, not less than v.
func nice(v float64, whole bool) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	step := 10 * power
	for _, s := range []float64{1, 2, 5} {
		if s*power >= v {
			step = s * power
			break
		}
	}
	if whole {
		return max(1, step)
	}
	return step
}

// round keeps one digit: a picture needs no more.
func round(v float64) float64 { return math.Round(v*10) / 10 }

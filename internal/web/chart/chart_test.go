package chart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/web/ui"
)

func runs(values ...float64) Input {
	in := Input{ID: "runs", Title: "Runs", Say: func(v float64) string { return fmt.Sprint(v) }, Whole: true,
		Series: []Series{{Name: "succeeded", Tone: ui.ToneOK, Values: values}, {Name: "failed", Tone: ui.ToneBad, Values: make([]float64, len(values))}}}
	for i := range values {
		in.Buckets = append(in.Buckets, fmt.Sprintf("%02d:00", i))
	}
	return in
}

// Bars stand on the axis or on each other, and none leaves the picture.
func TestBarsStandOnEachOther(t *testing.T) {
	in := runs(3, 0, 10)
	in.Series[1].Values[2] = 5
	c := New(in)
	if len(c.Bars) != 3 {
		t.Fatalf("%d bars, want one for each value that is not zero", len(c.Bars))
	}
	floor := c.Grid[0].Y
	lower, upper := c.Bars[1], c.Bars[2]
	if lower.Y+lower.H != floor || upper.Y+upper.H != lower.Y || upper.X != lower.X {
		t.Errorf("the bars %+v and %+v do not stand on %v and on each other", lower, upper, floor)
	}
	for _, b := range c.Bars {
		if b.X < left || b.X+b.W > width || b.Y < top || b.H <= 0 {
			t.Errorf("the bar %+v is outside of the picture", b)
		}
	}
}

func TestTheGridHasWholeNumbers(t *testing.T) {
	for most, want := range map[float64][]string{0: {"0", "1"}, 1: {"0", "1"}, 3: {"0", "1", "2", "3"}, 15: {"0", "5", "10", "15"}, 1234: {"0", "500", "1000", "1500"}} {
		var got []string
		for _, l := range New(runs(most)).Grid {
			got = append(got, l.Text)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("up to %v (-got +want):\n%s", most, diff)
		}
	}
}

// A user who does not see the picture gets the same figures.
func TestFiguresAreInTheTable(t *testing.T) {
	c := New(runs(3, 0, 10))
	if diff := cmp.Diff(c.Rows, []Row{{"00:00", []string{"3", "0"}}, {"01:00", []string{"0", "0"}}, {"02:00", []string{"10", "0"}}}); diff != "" {
		t.Errorf("rows (-got +want):\n%s", diff)
	}
	if want := "succeeded: at most 10, 02:00. failed: none."; c.Summary != want {
		t.Errorf("Summary = %q, want %q", c.Summary, want)
	}
	if none := New(runs(0, 0)); !none.None || strings.Contains(none.Summary, "at most") {
		t.Errorf("a chart without figures: %+v", none)
	}
}

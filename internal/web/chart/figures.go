package chart

import (
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Of are the charts of the runs of a period.
func Of(figures []query.Figure, p query.Period) []Chart {
	var buckets, marks []string
	for i, f := range figures {
		bucket, mark := bucketNames(f.Start, p, i)
		buckets, marks = append(buckets, bucket), append(marks, mark)
	}
	series := func(name string, tone ui.Tone, of func(query.Figure) float64) Series {
		s := Series{Name: name, Tone: tone}
		for _, f := range figures {
			s.Values = append(s.Values, of(f))
		}
		return s
	}
	count := func(of func(query.Figure) int) func(query.Figure) float64 {
		return func(f query.Figure) float64 { return float64(of(f)) }
	}
	number := func(n float64) string { return ui.Thousands(int(n)) }
	seconds := func(n float64) string { return ui.Took(time.Duration(n * float64(time.Second))) }
	in := func(id, title string, list ...Series) Input {
		return Input{ID: id, Title: title, Buckets: buckets, Marks: marks, Series: list, Say: number, Whole: true}
	}
	durations := in("chart-durations", "Average duration",
		series("plans and drift checks", ui.ToneBusy, func(f query.Figure) float64 { return average(f.PlanTime, f.Checks+f.Plans) }),
		series("applies", ui.ToneOK, func(f query.Figure) float64 { return average(f.ApplyTime, f.Applies) }))
	durations.Say, durations.Beside, durations.Whole, durations.Steps = seconds, true, false, durationSteps
	return []Chart{
		New(in("chart-runs", "Runs",
			series("drift checks", ui.ToneIdle, count(func(f query.Figure) int { return f.Checks })),
			series("plans", ui.ToneBusy, count(func(f query.Figure) int { return f.Plans })),
			series("applies", ui.ToneOK, count(func(f query.Figure) int { return f.Applies })))),
		New(in("chart-failures", "Failures",
			series("runs that failed", ui.ToneWarn, count(func(f query.Figure) int { return f.Failed })),
			series("failing stacks, at most", ui.ToneBad, count(func(f query.Figure) int { return f.Failing }))).SideBySide()),
		New(in("chart-drift", "Drift", series("drifted stacks, at most", ui.ToneDrift, count(func(f query.Figure) int { return f.Drifted })))),
		New(durations),
	}
}

// durationSteps are the steps of a grid of seconds.
var durationSteps = []float64{0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400}

// average is in seconds.
func average(milliseconds int64, n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(milliseconds) / float64(n) / 1000
}

// bucketNames are the name of a bucket in a table, and its label below the chart,
// which most have no room for. Times are in UTC, as in all of the pages.
func bucketNames(start time.Time, p query.Period, i int) (name, mark string) {
	start = start.UTC()
	name = start.Format("2 Jan 15:04")
	switch {
	case p.Name == "day" && start.Hour()%6 == 0:
		mark = start.Format("15:04")
	case p.Name == "week" && start.Hour() == 0:
		mark = start.Format("Mon 2")
	case p.Name == "month":
		name = start.Format("2 Jan 2006")
		if i%5 == 0 {
			mark = start.Format("2 Jan")
		}
	}
	return name, mark
}

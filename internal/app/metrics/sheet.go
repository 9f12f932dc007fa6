package metrics

import "github.com/prometheus/client_golang/prometheus"

// sheet is a set of gauges that are computed for each scrape, so that no code has to
// update them in between.
type sheet struct {
	gauges map[string]*prometheus.Desc
	fill   func(set func(name string, value float64, labels ...string))
}

// newSheet returns a sheet without gauges.
func newSheet() *sheet { return &sheet{gauges: map[string]*prometheus.Desc{}} }

// gauge adds one.
func (s *sheet) gauge(name, help string, labels ...string) {
	s.gauges[name] = prometheus.NewDesc(name, help, labels, nil)
}

func (s *sheet) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.gauges {
		out <- d
	}
}

func (s *sheet) Collect(out chan<- prometheus.Metric) {
	s.fill(func(name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(s.gauges[name], prometheus.GaugeValue, value, labels...)
	})
}

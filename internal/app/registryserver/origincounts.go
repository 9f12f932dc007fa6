package registryserver

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/registry/origin"
)

// originCounts are the metrics of registered repositories, by namespace.
type originCounts struct {
	published, checks *prometheus.CounterVec
	repositories      *prometheus.GaugeVec

	mu  sync.Mutex
	are map[origin.Key]string // the status of each repository
}

// The statuses of a repository.
const (
	originOK      = "ok"
	originFailing = "failing"
	originProblem = "problem"
)

func newOriginCounts(to prometheus.Registerer) (*originCounts, error) {
	c := &originCounts{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_module_tag_versions_total", Help: "Versions of modules that were published from tags of git repositories, by namespace."}, []string{"namespace"}),
		checks:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_module_repository_checks_total", Help: "Checks of the tags of registered git repositories, by namespace and result: succeeded or failed."}, []string{"namespace", "result"}),
		repositories: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "terrier_module_repositories", Help: "Registered git repositories by namespace and status: ok, failing if the last check failed, and problem if a tag contradicts what is published."},
			[]string{"namespace", "status"}),
		are: map[origin.Key]string{},
	}
	return c, errors.Join(to.Register(c.published), to.Register(c.checks), to.Register(c.repositories))
}

// Published implements origin.Counts.
func (c *originCounts) Published(k origin.Key) { c.published.WithLabelValues(k.Namespace).Inc() }

// Checked implements origin.Counts.
func (c *originCounts) Checked(k origin.Key, s origin.State) {
	result, status := "succeeded", originOK
	switch {
	case s.Error != "":
		result, status = "failed", originFailing
	case len(s.Problems) > 0:
		status = originProblem
	}
	c.checks.WithLabelValues(k.Namespace, result).Inc()
	c.is(k, status)
}

// Removed implements origin.Counts.
func (c *originCounts) Removed(k origin.Key) { c.is(k, "") }

// is moves a repository from one status to another; an empty one is none.
func (c *originCounts) is(k origin.Key, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.are[k]; was != "" {
		c.repositories.WithLabelValues(k.Namespace, was).Dec()
	}
	delete(c.are, k)
	if status != "" {
		c.are[k] = status
		c.repositories.WithLabelValues(k.Namespace, status).Inc()
	}
}

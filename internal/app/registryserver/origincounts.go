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
	problems          *prometheus.GaugeVec

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
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "terrier_module_tag_problems", Help: "Tags that contradict what is published, by the namespace and name of their registered git repository and by reason: TagMoved, TagsContradict or VersionHasOtherBytes."},
			[]string{"namespace", "name", "reason"}),
		are: map[origin.Key]string{},
	}
	return c, errors.Join(to.Register(c.published), to.Register(c.checks), to.Register(c.repositories), to.Register(c.problems))
}

// Published implements origin.Counts.
func (c *originCounts) Published(k origin.Key) { c.published.WithLabelValues(k.Namespace).Inc() }

// Checked implements origin.Counts.
func (c *originCounts) Checked(k origin.Key, s origin.State) {
	result := "succeeded"
	if s.Error != "" {
		result = "failed"
	}
	c.checks.WithLabelValues(k.Namespace, result).Inc()
	c.Known(k, s)
}

// Known implements origin.Counts.
func (c *originCounts) Known(k origin.Key, s origin.State) {
	status := originOK
	switch {
	case s.Error != "":
		status = originFailing
	case len(s.Problems) > 0:
		status = originProblem
	}
	c.is(k, status, s.Problems)
}

// Removed implements origin.Counts.
func (c *originCounts) Removed(k origin.Key) { c.is(k, "", nil) }

// is moves a repository from one status to another; an empty one is none.
func (c *originCounts) is(k origin.Key, status string, problems []origin.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems.DeletePartialMatch(prometheus.Labels{"namespace": k.Namespace, "name": k.Name})
	for _, p := range problems {
		c.problems.WithLabelValues(k.Namespace, k.Name, p.Reason).Inc()
	}
	if was := c.are[k]; was != "" {
		c.repositories.WithLabelValues(k.Namespace, was).Dec()
	}
	delete(c.are, k)
	if status != "" {
		c.are[k] = status
		c.repositories.WithLabelValues(k.Namespace, status).Inc()
	}
}

package infra

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// ConditionHealthCheck says whether the newest apply passed its checks.
// Upstream keeps the result of the first apply; this one is renewed after each.
const (
	ConditionHealthCheck = "HealthCheck"

	reasonHealthy = "HealthChecksSucceed"
)

const checksMost = 256 // of one stack

// checks reads which endpoints must answer after an apply, and whether to keep an inventory.
func checks(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	p.Inventory = s.EnableInventory
	if len(s.HealthChecks) > checksMost {
		return invalid("spec.healthChecks", "has %d checks, more than %d", len(s.HealthChecks), checksMost)
	}
	for i, h := range s.HealthChecks {
		at := fmt.Sprintf("spec.healthChecks[%d]", i)
		c := stack.Check{Name: h.Name, Kind: stack.CheckKind(h.Type)}
		field := at
		switch c.Kind {
		case stack.HTTPCheck:
			c.Target, field = h.URL, at+".url"
		case stack.TCPCheck:
			c.Target, field = h.Address, at+".address"
		default:
			return invalid(at+".type", "is %q, not tcp or http", h.Type)
		}
		if strings.TrimSpace(c.Target) == "" {
			return invalid(field, "is empty, and the type is %s", h.Type)
		}
		if err := workdir.CheckTarget(c.Target, field); err != nil {
			return err
		}
		if h.Timeout != nil {
			c.Timeout = max(0, h.Timeout.Duration)
		}
		p.Checks = append(p.Checks, c)
	}
	return nil
}

// checksDigest identifies the health checks; empty if there are none.
func checksDigest(c stack.Configuration) string {
	if len(c.Checks) == 0 {
		return ""
	}
	return stack.Digest(c.Checks)
}

// health sets the condition about the checks of a spec.
func health(c dialect.Conditions, spec *v1alpha2.TerraformSpec, s dialect.Summary) {
	var p stack.Configuration
	if err := checks(&p, spec); err != nil {
		return // what is wrong with the spec is said elsewhere
	}
	switch m, wanted := s.Status, checksDigest(p); {
	case wanted == "" || m.Destroyed:
		c.Drop(ConditionHealthCheck)
	case m.LastWrite == "":
		// Terrier has applied nothing yet: upstream's result stays.
	case m.Healthy == stack.HealthKey(wanted, m.LastWrite):
		c.Set(ConditionHealthCheck, metav1.ConditionTrue, reasonHealthy, "Health checks succeeded")
	case m.Failures > 0 && m.FailedKind == stack.HealthRun:
		c.Set(ConditionHealthCheck, metav1.ConditionFalse, dialect.ReasonUnhealthy, m.FailedWith)
	default:
		c.Set(ConditionHealthCheck, metav1.ConditionUnknown, dialect.ReasonProgressing, "The health checks have not run since the newest apply")
	}
}

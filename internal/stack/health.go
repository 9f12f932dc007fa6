package stack

// HealthKey names what the health checks of a stack are about: the checks, and the
// run that wrote last.
func HealthKey(health, wrote string) string { return health + "/" + wrote }

// unproved reports whether what was applied has not passed its health checks.
func (m Status) unproved(s Spec) bool {
	return s.Health != "" && m.LastWrite != "" && m.Created && !m.Destroyed && !s.Destroy && m.Healthy != HealthKey(s.Health, m.LastWrite)
}

// unhealthy reports whether what was applied failed its health checks.
func (m Status) unhealthy(s Spec) bool {
	return m.Failures > 0 && m.FailedKind == HealthRun && m.unproved(s)
}

// WithoutOldFailure is the status without the failure of a health check that is
// made no more: the checks were removed, or what they were about. No run would
// ever find out that it works.
func (m Status) WithoutOldFailure(s Spec) Status {
	if m.FailedKind == HealthRun && !m.unhealthy(s) {
		return m.clear()
	}
	return m
}

// unhealthy reports whether what was applied failed its health checks.
func (o Observation) unhealthy() bool { return o.Status.unhealthy(o.Spec) }

// degraded reports whether the stack is unhealthy and nothing else is to be done:
// nothing is planned, applied or published before it is known to work.
func (o Observation) degraded() bool {
	return o.unhealthy() && o.Status.Planned.same(o.PlanInputs) && !o.applicable() && (o.pendingIsCurrent() || !o.unpublished())
}

package tenant

// Tie is a change of what ties a tenant to its registry: an ownerReference, by which Kubernetes
// deletes the tenant with the registry.
type Tie string

// Changes of ties.
const (
	Untied Tie = "Untied"
	Tied   Tie = "Tied"
)

// protects reports whether a tenant is protected against deletion: by itself or by its template.
func (s *syncing) protects(e *Existing) bool {
	t := s.templates[e.Template]
	return e.Protected || t != nil && t.Protected
}

// tie unties a tenant that is protected. If a registry is deleted in the foreground, Kubernetes
// deletes at once what an ownerReference ties to it, without asking Terrier. The tenant is tied again
// once its template is known to protect it no more: programs that show trees follow the tie, and
// Tenant Operator deletes by it. Rows say nothing of ties, so that none has to be read.
func (s *syncing) tie(e *Existing) {
	t := s.templates[e.Template]
	switch {
	case e.Deleting:
	case s.protects(e):
		if e.Tied {
			s.changeOf(e).Tie = Untied
		}
	case e.Unowned && t != nil && !t.Deleting:
		s.changeOf(e).Tie = Tied
	}
}

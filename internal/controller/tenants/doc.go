// Package tenants reconciles the kinds of operator.kubernetes-tenants.org. It has
// three reconcilers, which share only objects:
//
//	Registries   rows → Tenant objects: created, changed, deleted     registry.go
//	Templates    their validity, and the progress of their rollouts   template.go
//	Tenants      one Tenant → its objects                             tenant.go
//
// Package tenant decides; this package reads, acts and reports. It queries the
// database at an interval, or when a user asks for it, never because an object
// changed. It writes values of a row only to the Secret of its Tenant.
//
// Start reading at Setup, then at Registries.Reconcile.
package tenants

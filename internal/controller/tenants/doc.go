// Package tenants keeps the kinds of operator.kubernetes-tenants.org true. There
// are three reconcilers, which meet only in objects:
//
//	Registries   rows → Tenant objects: made, changed, taken away     registry.go
//	Templates    is it valid, how far has its last change come        template.go
//	Tenants      one Tenant → its objects                             tenant.go
//
// What to do is decided in package tenant; here it is read, done and reported.
// The database is asked when it is time to, or when somebody asks for it, never
// because an object changed. No value of a row is written anywhere but to the
// Secret of its Tenant.
//
// Start reading at Setup, then at Registries.Reconcile.
package tenants

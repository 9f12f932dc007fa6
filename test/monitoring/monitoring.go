// Package monitoring proves the alert rules and the dashboard that are shipped
// in config/monitoring, with Prometheus' own parser and engine: every
// expression can be read, every metric in it is one that docs/metrics.md lists,
// and every alert fires when what it is for happens, and at no other time.
//
// That the list in docs/metrics.md is what a platform really serves is proved
// in test/e2e. This is a module of its own, since Prometheus is large and
// nothing else needs it.
//
// Start reading at monitoring_test.go.
package monitoring

// Package testkit is what tests stand on when they need a world: a real
// Kubernetes API server with a namespace for each test (Kube), and a cloud that
// is one file, with faults on demand (World).
//
// It is for tests only, pretends nothing that the real thing can do, and never
// waits without a deadline. What it starts ends with the process that started
// it, however that ends. Start reading at Kube.
package testkit

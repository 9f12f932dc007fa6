// Package process is the only place that starts programs: plainly, for our own
// helpers, or inside a box that confines a hostile run. It knows nothing about
// engines, stacks or Kubernetes.
package process

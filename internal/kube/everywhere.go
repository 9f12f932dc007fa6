package kube

import "context"

// Everywhere is work of a manager that each of several controllers does. All other work is
// done by their leader alone.
type Everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f Everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Everywhere) NeedLeaderElection() bool { return false }

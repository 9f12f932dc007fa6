// Package faults ends Terrier at every durable act of some scenarios, before it
// and after it, one act at a time: each write to the API server, each value of
// the records, each file of a run, each process that is started. After each end
// the controller is started again, the scenario goes on to its end, and then
// what the world saw is compared with what the stacks say.
//
// The API server goes on meanwhile; what it does when it is killed is tested in
// standalone/kubeapi. `make test` takes a sample, `make test-faults` takes them
// all. It refuses to pass over an act that a scenario no longer has.
//
// Start reading at TestCrashes, then scenarios.
package faults

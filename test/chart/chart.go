// Package chart proves what charts/terrier promises: with real Helm, a real API
// server that has RBAC, and a real registry. Files that the chart shares with the
// rest of the tree are copies, and a test compares them.
//
// Copies, the schema and the tables are written by
//
//	go test ./test/chart -update
//
// Start reading at copies_test.go.
package chart

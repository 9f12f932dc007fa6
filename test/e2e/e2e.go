// Package e2e proves what Terrier promises, from outside: a real `terrier up`
// with the real engine, real servers for its sources and a cloud that tells
// afterwards what was really done to it.
//
// It refuses to look inside: a test applies manifests, runs commands, breaks
// things, and reads objects, records and the world. Each test is named for the
// promise it owns. Tests share one platform, each in a namespace of its own;
// those that kill something have one to themselves.
//
// Start reading at inline_test.go.
package e2e

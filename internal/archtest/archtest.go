// Package archtest holds tests about the code itself: who may import whom,
// where programs are started, archives opened and requests sent, and a few
// habits that no compiler checks.
//
// It refuses to be clever: a rule reads source files, lists what breaks it and
// says the way out. What a rule lets pass is data with a reason beside it, and
// an entry that nothing needs any more is a failure too. There is nothing here
// to import. Start reading at rules_test.go, which lists the rules;
// layers_test.go holds the layers of docs/architecture.md.
package archtest

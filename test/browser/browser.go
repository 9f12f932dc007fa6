// Package browser is the tests of the pages in a real browser: Debian's
// Chromium, which `make deps` installs, against a whole platform. What can be
// known of a page without a browser is tested beside it, in internal/web/pages.
//
// Each visitor has a browser window of its own, and every test fails if the
// console of one says anything: an error of a script, or something that the
// content policy refused. Start reading at open in kit_test.go.
package browser

package rego

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// allowed are the built-in functions that policies may call. The list names those that
// are left out, so that a new release of the library adds its functions: each upgrade
// reads what is new (TestAllowedFunctions has all of them).
//
// What is left out reaches the network or the process (http.send, opa.runtime), gives
// another answer each time (rand.intn), handles keys (io.jwt, crypto.x509), or does work
// that no deadline ends, since one call is one step (net.cidr_expand, bits.lsh).
var allowed = sync.OnceValue(func() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.AllowNet = []string{} // nil would be any host
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return forbidden[b.Name] || slices.ContainsFunc(forbiddenFamilies, func(prefix string) bool { return strings.HasPrefix(b.Name, prefix) })
	})
	return c
})

var forbidden = map[string]bool{
	"http.send": true, "net.lookup_ip_addr": true, "opa.runtime": true, "rego.parse_module": true,
	"rand.intn": true, "uuid.rfc4122": true,
	"net.cidr_expand": true, "graph.reachable_paths": true, "regex.globs_match": true, "strings.render_template": true,
	"json.match_schema": true, "json.verify_schema": true,
	"crypto.parse_private_keys": true,
}

var forbiddenFamilies = []string{"io.jwt.", "crypto.x509.", "graphql.", "providers.", "bits."}

package web

import _ "embed"

// document is what the API says of itself: OpenAPI, made of the table of routes
// by a test, so that serving it takes no reflection.
//
//go:embed openapi.json
var document []byte

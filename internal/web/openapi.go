package web

import _ "embed"

// document is the OpenAPI document of the API, generated from the table of routes
// by a test, so that serving it takes no reflection.
//
//go:embed openapi.json
var document []byte

// Package admission embeds configuration of an API server, so that one binary can
// install it: the policies by which the server records who changed an object, and
// the webhooks by which it asks Terrier whether an object is valid. It does not parse
// the files.
//
// Start reading at changed-by.yaml and webhooks/validating.yaml.
package admission

import "embed"

// Files holds the policies, one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS

// Webhooks holds one YAML document in each file. They name a Service; the installer
// replaces it by the address of Terrier.
//
//go:embed webhooks/*.yaml
var Webhooks embed.FS

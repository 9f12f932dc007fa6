// Package admission holds what an API server is told to do before it stores an
// object, as files, so that one binary can install them: the policies by which it
// writes down who changed it, and the webhooks by which it asks Terrier whether it
// is valid. It knows nothing of what is in them.
//
// Start reading at changed-by.yaml and webhooks/validating.yaml.
package admission

import "embed"

// Files holds the policies, one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS

// Webhooks holds one YAML document in each file. They name a Service; whoever
// installs them puts the address that Terrier has in its place.
//
//go:embed webhooks/*.yaml
var Webhooks embed.FS

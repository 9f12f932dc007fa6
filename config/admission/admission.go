// Package admission embeds configuration of an API server, so that one binary can
// install it: the policies by which the server records who changed an object, the one by
// which it refuses deletions that Terrier could not order, and the webhooks by which it
// asks Terrier whether an object is valid. It does not parse the files.
//
// Start reading at changed-by.yaml, deletion/tenants.yaml and webhooks/validating.yaml.
package admission

import "embed"

// Files holds the policy of stamps and its binding, one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS

// Deletion holds the policy about deletions and its binding, one YAML document in each
// file below deletion.
//
//go:embed deletion/*.yaml
var Deletion embed.FS

// Webhooks holds one YAML document in each file. They name a Service; the installer
// replaces it by the address of Terrier.
//
//go:embed webhooks/*.yaml
var Webhooks embed.FS

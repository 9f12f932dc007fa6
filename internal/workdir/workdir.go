// Package workdir computes the files that turn a module tree into the
// directory a run executes in: backend, variables, CLI configuration. Files
// are values here; nothing is written.
package workdir

// File is one file of a workdir.
type File struct {
	Path    string // relative to the root module, with slashes
	Mode    uint32 // permission bits
	Content []byte
}

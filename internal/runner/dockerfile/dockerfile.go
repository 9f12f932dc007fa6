// Package dockerfile is what terrier-runner does in the pod that builds the Dockerfile of a
// stack, before and after BuildKit: it copies the code out of the image that brings it, and
// says at the end which image was pushed.
//
// It has no credentials, and starts nothing. Start reading at Program.
package dockerfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/archive"
)

// The first argument of terrier-runner that makes it one of these.
const (
	ArgumentContext = "build-context" // FROM TO: copies the tree FROM into the directory TO, which it makes
	ArgumentResult  = "build-result"  // METADATA TO: writes the digest in the file METADATA into TO
)

// Digest is where the metadata of BuildKit have the digest of what was pushed.
const Digest = "containerimage.digest"

// mostMetadata bounds the metadata, in bytes.
const mostMetadata = 1 << 20

// Program is the main function of both. It returns the exit code.
func Program(args []string, log io.Writer) int {
	var err error
	switch {
	case len(args) != 3:
		err = fmt.Errorf("%q needs two paths", args[0])
	case args[0] == ArgumentContext:
		err = copyTree(args[1], args[2])
	default:
		err = result(args[1], args[2])
	}
	if err != nil {
		fmt.Fprintln(log, "terrier-runner:", err)
		return 1
	}
	return 0
}

// copyTree copies a tree as artifacts have it: files, directories, and which are executable.
func copyTree(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return fmt.Errorf("copying the code: %w", err)
	}
	packed, into := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := archive.Pack(from, nil, into, archive.Limits{})
		ended <- err
		into.CloseWithError(err)
	}()
	err := archive.Extract(packed, to, archive.Limits{})
	packed.CloseWithError(err)
	if err := errors.Join(<-ended, err); err != nil {
		return fmt.Errorf("copying the code: %w", err)
	}
	return nil
}

// result writes the digest that metadata have.
func result(metadata, to string) error {
	f, err := os.Open(metadata)
	if err != nil {
		return fmt.Errorf("reading what was built: %w", err)
	}
	defer f.Close()
	var all map[string]json.RawMessage
	var digest string
	if err := json.NewDecoder(io.LimitReader(f, mostMetadata)).Decode(&all); err != nil {
		return fmt.Errorf("reading what was built: %w", err)
	}
	if err := json.Unmarshal(all[Digest], &digest); err != nil || digest == "" {
		return fmt.Errorf("reading what was built: the metadata of BuildKit have no %s", Digest)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("saying what was built: %w", err)
	}
	_, err = io.WriteString(out, digest)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("saying what was built: %w", err)
	}
	return nil
}

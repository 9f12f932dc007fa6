// Package source fetches code from its origin to this disk, as one immutable
// archive with a digest.
//
// A Fetcher (Git, OCI, Bucket) finds the present revision, cheaply, and fetches it as
// a deterministic tar.gz. A Store serves such artifacts; a Cache fetches the
// artifacts of any store, Terrier's or Flux's, and verifies every digest. Push and
// NewRegistry let a laptop be its own origin.
//
// The package runs no programs, trusts no name, follows no link out of a tree
// and reaches the network only through outbound. It knows no Kubernetes.
// Start reading at Fetcher.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
)

// The reasons of this package's faults. They are Flux's where Flux has one.
const (
	ReasonURL         = "URLInvalid"
	ReasonAuth        = "AuthenticationFailed"
	ReasonGit         = "GitOperationFailed"
	ReasonOCI         = "OCIArtifactPullFailed"
	ReasonLayer       = "OCIArtifactLayerOperationFailed"
	ReasonBucket      = "BucketOperationFailed"
	ReasonUnsupported = "Unsupported"
	ReasonReference   = "ReferenceInvalid"
	ReasonArtifact    = "ArtifactFailed"
	ReasonStorage     = "StorageOperationFailed"
)

// Found is the present revision of a source, before its download.
type Found struct {
	// Revision names the content for people and for comparison:
	// main@sha1:…, 1.2.3@sha256:…, sha256:….
	Revision string
	// Metadata is what is known already of what Fetch returns. An artifact with other
	// values there is of another place.
	Metadata map[string]string

	handle any // what Fetch needs to get exactly this
}

// Fetcher is one source. Resolve says what there is to fetch now; Fetch writes
// exactly that as an artifact and returns what else is known about it.
type Fetcher interface {
	Resolve(ctx context.Context) (Found, error)
	Fetch(ctx context.Context, found Found, w io.Writer) (metadata map[string]string, err error)
}

// scratchName begins the names of scratch directories.
const scratchName = "fetch-"

// OpenScratch prepares dir as the Scratch of fetchers: it creates the directory, and
// removes the files of a crash. No fetcher may run meanwhile.
func OpenScratch(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("opening the scratch directory: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, scratchName+"*"))
	if err != nil {
		return fmt.Errorf("opening the scratch directory: %w", err)
	}
	var failures []error
	for _, path := range left {
		failures = append(failures, os.RemoveAll(path))
	}
	return errors.Join(failures...)
}

// scratch makes a directory for the time of use and removes it afterwards.
func scratch(parent string, use func(dir string) error) error {
	dir, err := os.MkdirTemp(parent, scratchName)
	if err != nil {
		return fmt.Errorf("making a scratch directory: %w", err)
	}
	defer os.RemoveAll(dir)
	return use(dir)
}

// packed lets fill make a tree in a scratch directory and writes it to w, less
// what is ignored.
func packed(parent string, rules ignoreRules, limits archive.Limits, w io.Writer, fill func(dir string) error) error {
	return scratch(parent, func(dir string) error {
		if err := fill(dir); err != nil {
			return err
		}
		skip, err := rules.load(dir)
		if err != nil {
			return err
		}
		return archive.Pack(dir, skip, w, limits)
	})
}

func invalid(reason, format string, args ...any) error {
	return fault.New(fault.Invalid, reason, fmt.Errorf(format, args...))
}

func missing(reason, format string, args ...any) error {
	return fault.New(fault.Missing, reason, fmt.Errorf(format, args...))
}

func unauthorized(what string, err error) error {
	return fault.New(fault.Denied, ReasonAuth, fmt.Errorf("%s: %w", what, err))
}

// query matches what follows the question mark of a URL. Signed URLs, to which
// registries and buckets redirect, hold credentials there.
var query = regexp.MustCompile(`(https?://[^\s"'?]*)\?[^\s"']*`)

// ours matches the local end of a connection, whose port differs each time.
var ours = regexp.MustCompile(`(?:\d+(?:\.\d+){3}|\[[0-9a-f:.]+\]):\d+->`)

// Message returns err as a sentence that may be shown, and that stays the same
// as long as the reason does: without the queries of URLs, without our own
// ports, without control characters, at most 2 KiB.
func Message(err error) string {
	s := query.ReplaceAllString(err.Error(), "$1?•••")
	s = ours.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
	const most = 2048
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-len("…")], "") + "…"
	}
	return s
}

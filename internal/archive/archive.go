// Package archive is the only place that unpacks and packs archives.
//
// Extract treats what it reads as hostile: it creates directories and regular
// files below one directory and nothing else, refuses every name that is not
// plainly below it, and stops at its limits. Pack makes the same bytes from the
// same tree, always. Neither follows a link out of its directory: both work
// through os.Root.
//
// Callers compare the archive's digest before they extract it. The one digest here,
// HashPackage, is of the files in an archive. Start reading at Tree.
package archive

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Reason is the reason of every fault of this package.
const Reason = "ArchiveRefused"

// Limits bound what is read from or put into an archive. A zero field means
// its default, which is generous for a module tree.
type Limits struct {
	Entries int   // files and directories, those only implied by a name included; 50,000
	Bytes   int64 // of all files together, uncompressed; 512 MiB
	File    int64 // of one file; 256 MiB
	Depth   int   // of directories; 64
}

func (l Limits) orDefault() Limits {
	def := Limits{Entries: 50_000, Bytes: 512 << 20, File: 256 << 20, Depth: 64}
	if l.Entries == 0 {
		l.Entries = def.Entries
	}
	if l.Bytes == 0 {
		l.Bytes = def.Bytes
	}
	if l.File == 0 {
		l.File = def.File
	}
	if l.Depth == 0 {
		l.Depth = def.Depth
	}
	return l
}

// budget is what is left of the limits.
type budget struct {
	Limits
	entries int
	bytes   int64
}

// entry takes one entry at name off the budget.
func (b *budget) entry(name string) error {
	if depth := strings.Count(name, "/"); depth >= b.Depth {
		return refuse(name, "it is nested more than %d directories deep", b.Depth)
	}
	if b.entries++; b.entries > b.Entries {
		return refuse(name, "there are more than %d files and directories", b.Entries)
	}
	return nil
}

// file takes a file of the given size off the budget.
func (b *budget) file(name string, size int64) error {
	if size < 0 || size > b.File {
		return refuse(name, "it is larger than %d bytes", b.File)
	}
	if b.bytes += size; b.bytes > b.Bytes {
		return refuse(name, "everything together is larger than %d bytes", b.Bytes)
	}
	return nil
}

// refuse is the one way in which this package says no. The name is quoted and
// cut, because it comes from outside and goes into messages.
func refuse(name, format string, args ...any) error {
	const most = 256
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fault.New(fault.Invalid, Reason, fmt.Errorf("%q: %w", name, fmt.Errorf(format, args...)))
}

// mostName is how many bytes a name has at most. An archive can have larger ones.
const mostName = 4096

// local returns name as a clean, slash-separated path below a root, or an
// Invalid fault that says why it is none. The root itself is ".".
func local(name string) (string, error) {
	switch {
	case name == "":
		return "", refuse(name, "the name is empty")
	case len(name) > mostName:
		return "", refuse(name, "the name is too long")
	case strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0:
		return "", refuse(name, "the name holds control characters")
	case !filepath.IsLocal(name):
		return "", refuse(name, "the name does not stay below the root")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refuse(name, "the name goes up")
		}
		if len(part) > 255 {
			return "", refuse(name, "a part of the name is too long")
		}
	}
	return filepath.ToSlash(filepath.Clean(name)), nil
}

// errTooLong is what a capped reader returns at its cap.
var errTooLong = errors.New("it is larger than the limits allow")

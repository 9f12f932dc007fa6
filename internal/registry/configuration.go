package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// Bounds of the configuration of an upload that is parsed. What is beyond them is not
// checked: the check tells a publisher of a mistake, and protects nothing.
const (
	mostParsedFile  = 1 << 20
	mostParsedFiles = 2000
	mostParsed      = 16 << 20 // bytes of all files together
	parsingAtOnce   = 2
)

// configuration is what an archive of a module has for its callers, as far as it is checked.
type configuration struct {
	files map[string]*bytes.Buffer
	left  int64
	any   bool // it has a file of configuration anywhere
}

// keep implements the argument of archive.Read.
func (c *configuration) keep(name string, size int64) io.Writer {
	c.any = c.any || isConfiguration(name)
	if !module.IsCalled(name) || size > mostParsedFile || size > c.left || len(c.files) >= mostParsedFiles {
		return nil
	}
	b := &bytes.Buffer{}
	c.files[name] = b
	c.left -= size
	return b
}

// checkModule refuses what is no archive of a module. Wrong says what no engine can read in
// its configuration: a version never changes, so clients could not use it.
func (c *common) checkModule(ctx context.Context, s *spooled) (format archive.Format, wrong, err error) {
	select {
	case c.parsing <- struct{}{}:
		defer func() { <-c.parsing }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	has := configuration{files: map[string]*bytes.Buffer{}, left: mostParsed}
	if format, _, err = archive.Read(s.File, s.Size, archive.Limits{}, has.keep); err != nil {
		return "", nil, err
	}
	if format == archive.PlainTar { // clients know no name for it
		return "", nil, fault.New(fault.Invalid, archive.Reason, errors.New("reading the archive: it is neither a zip archive nor a gzipped tar archive"))
	}
	if !has.any {
		return "", nil, fault.New(fault.Invalid, UploadInvalid, errors.New("the archive has no file that ends in .tf, .tofu, .tf.json or .tofu.json: pack the directory of the module"))
	}
	for _, name := range slices.Sorted(maps.Keys(has.files)) {
		if err := module.Check(name, has.files[name].Bytes()); err != nil {
			wrong = fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("the configuration of the module cannot be read: %s. Correct the file, and publish the module then", strings.TrimSuffix(err.Error(), ".")))
			break
		}
	}
	return format, wrong, nil
}

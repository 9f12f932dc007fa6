package module

import (
	"path"
	"strings"
)

// IsCalled reports whether callers of a published module can reach a file by its name in the
// archive: configuration at the root, or below the directory modules. Examples and tests can
// be wrong without an effect on callers.
func IsCalled(name string) bool {
	dir, base := path.Split(name)
	return (dir == "" || strings.HasPrefix(dir, "modules/")) && len(Configuration([]string{base})) > 0
}

// Check reports what no engine can read in a file of configuration, with its line: Invalid.
func Check(name string, src []byte) error {
	body, err := parse(name, src)
	if err != nil {
		return err
	}
	_, _, diags := body.PartialContent(documentSchema)
	return diagnosed(diags)
}

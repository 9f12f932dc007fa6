package publish

import (
	"fmt"
	"strings"
)

// mostNamed is how many files an error names.
const mostNamed = 5

// checkSecrets refuses files that often hold secrets: published content never changes, and
// every reader of the namespace gets it.
func (m Module) checkSecrets() error {
	files, exclude, err := m.tree.Secrets()
	if err != nil {
		return fmt.Errorf("reading the module: %w", err)
	}
	if len(files) == 0 {
		return nil
	}
	named := strings.Join(files[:min(mostNamed, len(files))], ", ")
	if more := len(files) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	for i, p := range exclude {
		exclude[i] = "--exclude '" + strings.ReplaceAll(p, "'", `'\''`) + "'"
	}
	return invalid(ReasonSecrets, "the archive would have files that often hold secrets, and a published version never changes: %s. Leave them out with %s, or publish them with --allow-secret-files", named, strings.Join(exclude, " "))
}

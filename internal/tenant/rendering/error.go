package rendering

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/meter"
)

var (
	// position is where package template says that an error is.
	position = regexp.MustCompile(`^template: ` + mainTree + `:(\d+)(:\d+)?: `)
	// executing is its position in the rewritten template, which users do not know.
	executing = regexp.MustCompile(`^executing "[^"]*" at <(?s:.*?)>: (error calling \w+: )?`)
	// inside names the function that failed, as rewriting calls it.
	inside = regexp.MustCompile(`\berror calling \w+: `)
)

// plain is an error of package template for users: the line, if it is not the only
// one, and the problem.
func plain(err error) error {
	text, line := err.Error(), "1"
	if at := position.FindStringSubmatch(text); at != nil {
		line, text = at[1], text[len(at[0]):]
	}
	text = inside.ReplaceAllString(executing.ReplaceAllString(text, ""), "")
	for _, known := range []error{meter.ErrTooMuch, meter.ErrTooLong} {
		if errors.Is(err, known) {
			text = known.Error()
		}
	}
	if call, ok := errors.AsType[*callError](err); ok {
		text = call.Error()
	}
	if missing, ok := errors.AsType[*missingError](err); ok {
		text = missing.Error()
	}
	const most = 512
	if text = strings.ToValidUTF8(text, ""); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if line == "1" {
		return errors.New(text)
	}
	return fmt.Errorf("line %s: %s", line, text)
}

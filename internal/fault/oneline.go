package fault

import "strings"

// lineBreak stands for the end of a line in a text of one line.
const lineBreak = " | "

// frames are what engines draw around their errors.
const frames = "╷│╵ \t\r"

// OneLine returns a text of several lines as one. A bar is between two lines. Empty lines
// and the frames around errors of an engine are left out.
func OneLine(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(strings.TrimLeft(line, frames), frames+"\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, lineBreak)
}

package workdir

import (
	"encoding/json"
	"fmt"
)

// Reply renders a template, between ${{ and }}, over the JSON that a webhook
// answered with. Its data is that of upstream: every number is a float64, and a
// missing value is empty, so that templates for upstream mean the same here.
func Reply(text string, reply []byte, path string) (string, error) {
	var data any
	if err := json.Unmarshal(reply, &data); err != nil {
		return "", fmt.Errorf("reading the answer as JSON: %w", err)
	}
	b := budget{actions: maxExecuted, text: maxHandled}
	return b.execute(text, data, path, "missingkey=default")
}

// CheckTemplate reports why text cannot be a template at all.
func CheckTemplate(text, path string) error {
	_, err := new(budget).parse(text, path)
	return err
}

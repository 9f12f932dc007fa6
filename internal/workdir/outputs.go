package workdir

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// OutputType ends the key that holds the type of a published output that is no
// string.
const OutputType = "__type"

// PublishedOutputs returns the outputs that a stack published in a Secret, for
// stacks that read them: every value as JSON.
func PublishedOutputs(data map[string][]byte) (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	for k, v := range data {
		if strings.HasSuffix(k, OutputType) {
			if _, ok := data[strings.TrimSuffix(k, OutputType)]; ok {
				continue
			}
		}
		if _, typed := data[k+OutputType]; typed {
			if !json.Valid(v) {
				return nil, fault.New(fault.Invalid, "InputInvalid", fmt.Errorf("the key %q has a type but is not JSON", k))
			}
			values[k] = json.RawMessage(v)
			continue
		}
		text, err := json.Marshal(string(v))
		if err != nil {
			return nil, err
		}
		values[k] = text
	}
	return values, nil
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p runCommands) outputs() *cobra.Command {
	var (
		f    format
		show bool
	)
	c := &cobra.Command{
		Use:   "outputs STACK",
		Short: "Show the outputs of a stack",
		Long: `Shows the outputs of a stack, from the Secret that it publishes them to. You
need the permission to read this Secret. Sensitive outputs, and outputs that hold a value
from a Secret, are masked unless --show-secrets is given. The server tells users
who may read the state which values came from Secrets. If it does not answer, every value
is masked, and the command says so on standard error.`,
		Example: `  terrier outputs network
  terrier outputs network -o json --show-secrets`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			list, err := s.Outputs(ctx, key, show)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(list, func(o query.Output) bool { return o.Masked != "" }); i >= 0 {
				p.note("%s. To show the values: --show-secrets\n", list[i].Masked)
			}
			if p.structured(f, map[string]any{"items": list}) {
				return nil
			}
			for _, o := range list {
				value := plan.Mask
				if o.Value != nil {
					value = compact(o.Value)
				}
				p.say("%s = %s\n", o.Name, value)
			}
			return nil
		}),
	}
	secretsFlag(c, &show, "show")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// compact is JSON on one line.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

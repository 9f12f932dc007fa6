package controller

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// findImports turns the repair that a person asked for into the imports of a
// plan, which is then another plan than one without them.
func (p *pass) findImports() *stack.Blocked {
	var imports []module.Import
	for _, u := range p.o.Imports() {
		if u.ID == "" {
			return &stack.Blocked{Kind: fault.Invalid, Reason: stack.StateIncomplete, Message: fmt.Sprintf(
				"The repair cannot be planned: the identifier of %s is not known. Say it with terrier repair --id '%[1]s=…', or say that it does not exist with --absent '%[1]s'", u.Address)}
		}
		imports = append(imports, module.Import{Address: u.Address, ID: u.ID})
	}
	if len(imports) == 0 {
		return nil
	}
	file, err := module.ImportsFile(imports)
	if err != nil {
		return blockedBy(err, stack.StateIncomplete)
	}
	p.in.imports = &file
	p.o.PlanInputs.Shape = stack.Digest([]any{p.o.PlanInputs.Shape, imports})
	return nil
}

package input

import (
	"context"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Scripts are the texts of scripts, byte for byte as a user wrote them. One that is a file
// of the source has none.
type Scripts struct{ Apply, Destroy []byte }

// scriptBytes bounds one script.
const scriptBytes = 1 << 20

// withScripts adds to the parts of a digest what the scripts of the stack are. A script that
// destroys is given, since one that changes alone changes nothing about an apply.
func (s *resolution) withScripts(parts []any, apply []byte, destroy stack.ScriptText) []any {
	of := s.Configuration.Script
	if of == nil {
		return parts
	}
	parts = append(slices.Clone(parts), Scripts{Apply: apply, Destroy: []byte(destroy.Text)}, of.Apply.Path, destroy.Path)
	if len(of.Apply.Args)+len(destroy.Args) > 0 {
		parts = append(parts, of.Apply.Args, destroy.Args)
	}
	if of.PostDeploy != nil {
		parts = append(parts, *of.PostDeploy)
	}
	return parts
}

// DestroyScript reads the script that destroys a stack, and nothing else.
func (r Resolver) DestroyScript(ctx context.Context) ([]byte, error) {
	return r.begin().script(ctx, "destroy", r.Configuration.Script.Destroy)
}

// scripts reads the scripts of a stack that has some.
func (s *resolution) scripts(ctx context.Context) (out Scripts, err error) {
	of := s.Configuration.Script
	if of == nil {
		return out, nil
	}
	if out.Apply, err = s.script(ctx, "apply", of.Apply); err == nil {
		out.Destroy, err = s.script(ctx, "destroy", of.Destroy)
	}
	return out, err
}

func (s *resolution) script(ctx context.Context, name string, t stack.ScriptText) ([]byte, error) {
	text := []byte(t.Text)
	if t.Config != nil {
		var err error
		if text, _, err = s.key(ctx, ConfigMap, *t.Config); err != nil {
			return nil, fmt.Errorf("scripts.%s.configMapRef: %w", name, err)
		}
		if len(text) == 0 {
			return nil, fault.New(fault.Missing, "", fmt.Errorf("scripts.%s.configMapRef: the key %q of the ConfigMap %s is empty", name, t.Config.Key, t.Config.Name))
		}
	}
	if len(text) > scriptBytes {
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("scripts.%s has %d bytes, more than %d", name, len(text), scriptBytes))
	}
	return text, nil
}

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// The variables of a stack stand in a file that the engine loads by itself, in
// the order of the names of such files. A file of the module whose name comes
// later would overrule it, so the engine is then given the stack's file once
// more by name, which overrules all that it loads by itself.

// varFiles are the files of variables that the engine is given by name.
func (r *preparation) varFiles() engine.VarFiles {
	v := engine.VarFiles{Files: r.job.Options.VarFiles, Tree: r.work.treeRoot()}
	if r.overrules {
		v.First = workdir.VariablesPath
	}
	return v
}

// findVarFiles ends the run if the source has no file that the stack names: no retry
// would find it. A break-glass session goes on, since a user may do without it.
func (r *preparation) findVarFiles() error {
	if len(r.job.Options.VarFiles) == 0 || r.job.Kind == stack.BreakGlassRun {
		return nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	for i, name := range r.job.Options.VarFiles {
		info, err := tree.Stat(name)
		what := ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			what = "has no file"
		case err != nil:
			return fmt.Errorf("spec.tfVarsFiles[%d]: %w", i, err)
		case !info.Mode().IsRegular():
			what = "has no regular file, but another kind of file, at"
		default:
			continue
		}
		return ending{outcome: stack.Failed, step: "init", permanent: true, message: fmt.Sprintf(
			"spec.tfVarsFiles[%d]: the source %s %q. The path is relative to the root of the source, not to spec.path. Correct the field, or add the file to the source.", i, what, name)}
	}
	return nil
}

// overrule finds the files of the module that set variables of the stack, and
// warns of each: what stands there is not used.
func (r *preparation) overrule() error {
	r.overrules = false
	at := slices.IndexFunc(r.job.Files, func(f workdir.File) bool { return f.Path == workdir.VariablesPath })
	if at < 0 {
		return nil
	}
	own := engine.VariablesInJSON(r.job.Files[at].Content)
	if len(own) == 0 {
		return nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	root, err := fs.Sub(tree.FS(), r.work.root)
	if err != nil {
		return err
	}
	files, err := engine.AutoVariables(root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name == workdir.VariablesPath {
			continue
		}
		if files[name] == nil { // it may set any of them
			r.overrules = true
			continue
		}
		names := slices.DeleteFunc(files[name], func(v string) bool { return !slices.Contains(own, v) })
		if len(names) == 0 {
			continue
		}
		r.overrules = true
		r.warn(plan.Diagnostic{
			Severity: "warning", Summary: "Variables of a file are overruled by the stack", File: path.Join(r.work.root, name),
			Detail: fmt.Sprintf("The spec of the stack sets %s, so the values in %s are not used. To use those, remove the variables from the spec.", strings.Join(names, ", "), name),
		})
	}
	return nil
}

// warn adds a warning of the supervisor to those of the engine.
func (r *run) warn(d plan.Diagnostic) {
	r.recorder.warn(d)
	r.reportFile.set(func(rep *Report) { rep.Diagnostics = append(rep.Diagnostics, d) })
}

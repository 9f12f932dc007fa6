package stack

import (
	"encoding/json"
	"slices"
)

// Besides names the fields of an infra.contrib.fluxcd.io stack, or of another kind, by which
// its runs get code that is not in its source, or other programs than those of the platform:
// what a signature on the source, or the address of the source, says nothing of. A file of a
// Secret may be a module or a script, whatever it is called, and at home it may be the
// configuration of git; the configuration of the command line may name another registry.
func (c Configuration) Besides() []string {
	var all []string
	if len(c.Files) > 0 {
		all = append(all, "fileMappings")
	}
	if c.CLIConfig != nil {
		all = append(all, "cliConfigSecretRef")
	}
	if s := c.Script; s != nil && (s.Apply.brought() || s.Destroy.brought()) {
		all = append(all, "scripts")
	}
	return append(all, c.Pod.Brings()...)
}

// brought reports whether a script is not a file of the source.
func (t ScriptText) brought() bool { return t.Text != "" || t.Config != nil }

// Brings names the fields of the pod of a run by which other programs are in it than in the
// platform's image. A template that cannot be read may say anything.
func (p Pod) Brings() []string {
	if len(p.Template) == 0 {
		return nil
	}
	var template struct {
		Spec struct {
			InitContainers []json.RawMessage `json:"initContainers"`
			Containers     []struct {
				Image   string            `json:"image"`
				Command []string          `json:"command"`
				Mounts  []json.RawMessage `json:"volumeMounts"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(p.Template, &template); err != nil {
		return []string{"runnerPodTemplate"}
	}
	var all []string
	say := func(field string) {
		if field = "runnerPodTemplate.spec." + field; !slices.Contains(all, field) {
			all = append(all, field)
		}
	}
	if len(template.Spec.InitContainers) > 0 {
		say("initContainers")
	}
	for _, c := range template.Spec.Containers {
		if c.Image != "" || len(c.Command) > 0 {
			say("image")
		}
		if len(c.Mounts) > 0 {
			say("volumeMounts")
		}
	}
	return all
}

package workdir

import "strings"

// ConfigFiles chooses among the files of a module those that an engine (tofu or terraform)
// reads as configuration, in the order in which it reads them: tofu prefers x.tofu over
// x.tf, and terraform does not see the former. What override files say replaces what the
// primary ones say.
func ConfigFiles(names []string, engine string) (primary, override []string) {
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	for _, name := range names {
		base, ext := splitExtension(name)
		if ext == "" || ignored(name) {
			continue
		}
		if tofuOnly := strings.HasPrefix(ext, ".tofu"); engine == "terraform" {
			if tofuOnly {
				continue
			}
		} else if !tofuOnly && there[base+strings.Replace(ext, ".tf", ".tofu", 1)] {
			continue
		}
		if base == "override" || strings.HasSuffix(base, "_override") {
			override = append(override, name)
		} else {
			primary = append(primary, name)
		}
	}
	return primary, override
}

func splitExtension(name string) (base, ext string) {
	for _, ext := range []string{".tf.json", ".tofu.json", ".tf", ".tofu"} {
		if base, ok := strings.CutSuffix(name, ext); ok {
			return base, ext
		}
	}
	return name, ""
}

// ignored reports whether engines take a file for a hidden one or the leavings
// of an editor.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
		strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

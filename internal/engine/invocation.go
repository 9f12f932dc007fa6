package engine

import (
	"io/fs"
	"slices"
	"strings"
)

// Invocation is a command line of an engine as a user wrote it, in a script. What it
// asks for decides what the platform adds to it. It is taken apart only that far: the
// engine judges the rest.
type Invocation struct {
	Args []string
	Name string // the command; empty if there is none, as in -version

	at int // where the command stands
}

// ParseInvocation finds the command in a command line.
func ParseInvocation(args []string) Invocation {
	for i, a := range args {
		if a != "" && !strings.HasPrefix(a, "-") { // an engine passes over an empty one
			return Invocation{Args: args, Name: a, at: i}
		}
	}
	return Invocation{Args: args, at: len(args)}
}

// Dir is the directory that -chdir names; empty without it.
func (i Invocation) Dir() string {
	dir := ""
	for _, a := range i.Args[:i.at] {
		if d, ok := strings.CutPrefix(strings.TrimPrefix(a, "-"), "-chdir="); ok {
			dir = d
		} else if d, ok := strings.CutPrefix(a, "-chdir="); ok {
			dir = d
		}
	}
	return dir
}

// Here is the command without -chdir, for an engine that is started in that directory.
func (i Invocation) Here() Invocation {
	before := slices.DeleteFunc(slices.Clone(i.Args[:i.at]), func(a string) bool {
		return strings.HasPrefix(a, "-chdir=") || strings.HasPrefix(a, "--chdir=")
	})
	return Invocation{Args: slices.Concat(before, i.Args[i.at:]), Name: i.Name, at: len(before)}
}

// Value returns the value of a flag of the command, and whether it is there. The last one
// counts, as it does to the engine. The value of one without any is empty.
func (i Invocation) Value(flag string) (value string, has bool) {
	for _, f := range i.flags() {
		if f.name == flag {
			value, has = f.value, true
		}
	}
	return value, has
}

// Mentions reports whether a flag stands anywhere behind the command, also as the value of
// another one.
func (i Invocation) Mentions(flag string) bool {
	return slices.ContainsFunc(i.Args[i.at:], func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-"+flag || name == "--"+flag
	})
}

// Operands are the arguments of the command that are no flags.
func (i Invocation) Operands() []string {
	_, operands := i.split()
	return operands
}

// With adds flags to the command, in front of its own.
func (i Invocation) With(flags ...string) []string {
	if i.Name == "" {
		return i.Args
	}
	return slices.Concat(i.Args[:i.at+1], flags, i.Args[i.at+1:])
}

// Planning is the command that plans what an apply without a saved plan would do.
func (i Invocation) Planning(out string) []string {
	args := append(slices.Clone(i.Args[:i.at]), "plan", "-out="+out)
	for _, f := range i.flags() {
		if f.name != "auto-approve" && f.name != "json" && f.name != "json-into" && f.name != "backup" && f.name != "state-out" {
			args = append(args, f.text...)
		}
	}
	return args
}

// Applying is the command that applies a saved plan with what the command says of how.
func (i Invocation) Applying(engine, saved string) []string {
	args := append(slices.Clone(i.Args[:i.at]), "apply")
	for _, f := range i.flags() {
		switch f.name {
		case "parallelism", "lock", "lock-timeout", "compact-warnings", "no-color":
			args = append(args, f.text...)
		case "var", "var-file":
			if engine == "tofu" { // it compares them with the plan; terraform takes none
				args = append(args, f.text...)
			}
		}
	}
	return append(args, saved)
}

type invocationFlag struct {
	name, value string
	text        []string // as it was written
}

func (i Invocation) flags() []invocationFlag {
	flags, _ := i.split()
	return flags
}

// valued are the flags of plan and apply that take their value from the next argument
// if they have none of their own.
var valued = []string{"var", "var-file", "target", "target-file", "exclude", "exclude-file", "replace", "parallelism", "lock-timeout", "state", "state-out", "backup",
	"out", "json-into", "generate-config-out", "backend-config", "plugin-dir", "from-module", "lockfile"}

func (i Invocation) split() (flags []invocationFlag, operands []string) {
	if i.Name == "" {
		return nil, nil
	}
	rest := i.Args[i.at+1:]
	for n := 0; n < len(rest); n++ {
		a := rest[n]
		if a == "--" {
			return flags, append(operands, rest[n+1:]...)
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			return flags, append(operands, rest[n:]...) // flags end at the first operand
		}
		f := invocationFlag{text: []string{a}}
		var has bool
		f.name, f.value, has = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-"), "=")
		if !has && slices.Contains(valued, f.name) && n+1 < len(rest) {
			n++
			f.value, f.text = rest[n], append(f.text, rest[n])
		}
		flags = append(flags, f)
	}
	return flags, operands
}

// What the commands of an engine are about.
var (
	withoutDirectory = []string{"", "version", "fmt", "login", "logout", "metadata"}
	touchingState    = []string{"init", "plan", "apply", "destroy", "refresh", "import", "taint", "untaint", "state", "workspace"}
	changing         = []string{"apply", "destroy", "refresh", "import", "taint", "untaint"}
	reading          = []string{"", "version", "fmt", "login", "logout", "metadata", "plan", "validate", "show", "output", "graph", "console", "providers", "get", "modules"}
	readingBelow     = map[string][]string{"state": {"list", "show", "pull"}, "workspace": {"list", "show"}}
	streaming        = []string{"plan", "apply", "destroy", "refresh"}
	coloured         = []string{"init", "plan", "apply", "destroy", "refresh", "import", "validate", "show", "output"}
)

// NeedsDirectory reports whether the command needs an initialised directory.
func (i Invocation) NeedsDirectory() bool {
	return !slices.Contains(withoutDirectory, i.Name) && i.Name != "init" && !i.asksHelp()
}

// TouchesState reports whether the command reads or writes a state, so that it matters
// where that is.
func (i Invocation) TouchesState() bool {
	if b, ok := i.Value("backend"); i.Name == "init" && ok && b == "false" {
		return false
	}
	return slices.Contains(touchingState, i.Name) && !i.asksHelp()
}

// ChangesResources reports whether the command may write the state.
func (i Invocation) ChangesResources() bool {
	return slices.Contains(changing, i.Name) && !i.asksHelp()
}

// OnlyReads reports whether the command changes neither a state nor resources. A command
// that this binary does not know may change them, and so may a workspace that is selected:
// the next command would work with another state.
func (i Invocation) OnlyReads() bool {
	if i.Name == "state" || i.Name == "workspace" {
		operands := i.Operands()
		return len(operands) > 0 && slices.Contains(readingBelow[i.Name], operands[0])
	}
	if i.Name == "init" {
		return !i.Mentions("migrate-state") && !i.Mentions("force-copy")
	}
	return slices.Contains(reading, i.Name)
}

// Streams reports whether an engine can write the events of the command into a file and
// print it for people at the same time. If the command itself asks for events, it cannot.
func (i Invocation) Streams(name, version string) bool {
	v, ok := parts(version)
	if !ok || name != "tofu" || less(v, [3]int{1, 12, 0}) || !slices.Contains(streaming, i.Name) || i.asksHelp() {
		return false
	}
	_, json := i.Value("json")
	_, into := i.Value("json-into")
	return !json && !into
}

// Plainly adds to the command that it prints without colours.
func (i Invocation) Plainly() Invocation {
	if _, has := i.Value("no-color"); has || !slices.Contains(coloured, i.Name) {
		return i
	}
	i.Args = i.With("-no-color")
	return i
}

func (i Invocation) asksHelp() bool {
	return slices.ContainsFunc(i.Args, func(a string) bool { return a == "-h" || a == "-help" || a == "--help" })
}

// DeclaredBackend returns the type of the backend that the configuration in a directory
// declares, or cloud; empty if it declares none.
func DeclaredBackend(dir fs.FS) (string, error) {
	r := &configReader{left: maxConfiguration}
	files, err := r.files(dir)
	if err != nil {
		return "", err
	}
	for name, src := range files {
		if strings.HasSuffix(name, ".json") {
			if found, err := backendInJSON(src); err != nil || found != "" {
				return found, err
			}
			continue
		}
		items, err := parseSyntax(src)
		if err != nil {
			return "", err
		}
		for _, i := range items {
			for _, b := range i.body {
				switch {
				case i.name != "terraform" || !b.block:
				case b.name == "cloud":
					return "cloud", nil
				case b.name == "backend" && len(b.labels) == 1:
					return b.labels[0], nil
				}
			}
		}
	}
	return "", nil
}

// HasConfiguration reports whether a directory has configuration besides the named
// files.
func HasConfiguration(dir fs.FS, besides ...string) (bool, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		plain := strings.TrimSuffix(e.Name(), ".json")
		return !e.IsDir() && !strings.HasPrefix(plain, ".") && (strings.HasSuffix(plain, ".tf") || strings.HasSuffix(plain, ".tofu")) && !slices.Contains(besides, e.Name())
	}), nil
}

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// BreakGlassCommand is one of the commands that a user may run in a break-glass
// session.
type BreakGlassCommand struct {
	Words  string // state list
	Takes  string // what follows, for people
	Writes bool   // it may change the state
	Bare   bool   // it works on the state alone, without the module

	least, most int // operands
	operand     func(n int, s string) error
	flags       map[string]func(value string) error // by name; nil takes no value
	locks       bool                                // it knows -lock
	varFiles    bool
	input       bool // it knows -input
	backs       bool // it insists on a backup of a state in a file
}

// BreakGlassOptions are what the platform adds to such a command.
type BreakGlassOptions struct {
	VarFiles VarFiles
	NoLock   bool
	Backup   string // for a state in a file: where a copy of it goes, for the engine's own choice may not exist
}

// breakGlassCommands is the closed list. None of them runs a program, reads or
// writes a file that it is told, or applies anything.
func breakGlassCommands() []BreakGlassCommand {
	address := func(_ int, s string) error { return CheckTarget(s) }
	yesOrNo := func(s string) error { return oneOf(s, "true", "false") }
	return []BreakGlassCommand{
		{Words: "state list", Takes: "[ADDRESS…]", Bare: true, most: 64, operand: address, flags: map[string]func(string) error{"id": checkImportID}},
		{Words: "state show", Takes: "ADDRESS", Bare: true, least: 1, most: 1, operand: address},
		{Words: "state mv", Takes: "ADDRESS ADDRESS", Writes: true, Bare: true, least: 2, most: 2, operand: address, locks: true, backs: true, flags: map[string]func(string) error{"dry-run": nil}},
		{Words: "state rm", Takes: "ADDRESS…", Writes: true, Bare: true, least: 1, most: 64, operand: address, locks: true, backs: true, flags: map[string]func(string) error{"dry-run": nil}},
		{Words: "import", Takes: "ADDRESS ID", Writes: true, least: 2, most: 2, locks: true, varFiles: true, input: true, operand: func(n int, s string) error {
			if n == 1 {
				return checkImportID(s)
			}
			return CheckTarget(s)
		}},
		{Words: "taint", Takes: "ADDRESS", Writes: true, Bare: true, least: 1, most: 1, operand: address, locks: true},
		{Words: "untaint", Takes: "ADDRESS", Writes: true, Bare: true, least: 1, most: 1, operand: address, locks: true},
		{Words: "output", Takes: "[NAME]", Bare: true, most: 1, operand: address, flags: map[string]func(string) error{"json": nil, "raw": nil}},
		{Words: "providers"},
		{Words: "validate", flags: map[string]func(string) error{"json": nil}},
		{Words: "graph", flags: map[string]func(string) error{
			"type": func(s string) error { return oneOf(s, "plan", "plan-refresh-only", "plan-destroy", "apply") }, "draw-cycles": nil,
		}},
		{Words: "plan", locks: true, varFiles: true, input: true, flags: map[string]func(string) error{
			"destroy": nil, "refresh-only": nil, "refresh": yesOrNo, "target": CheckTarget, "replace": CheckTarget,
		}},
	}
}

// BreakGlassCommands lists the commands of a break-glass session.
func BreakGlassCommands() []BreakGlassCommand { return breakGlassCommands() }

// ParseBreakGlass finds the command that args ask for and reports whether every
// argument is one that it may be given.
func ParseBreakGlass(args []string) (BreakGlassCommand, error) {
	c, rest, err := breakGlassCommand(args)
	if err != nil {
		return c, err
	}
	_, _, err = c.split(rest)
	return c, err
}

// BreakGlassArgs returns the engine's arguments for a command that a user asked
// for.
func BreakGlassArgs(args []string, o BreakGlassOptions) ([]string, error) {
	c, rest, err := breakGlassCommand(args)
	if err != nil {
		return nil, err
	}
	flags, operands, err := c.split(rest)
	if err != nil {
		return nil, err
	}
	out := append(strings.Fields(c.Words), "-no-color")
	if c.input {
		out = append(out, "-input=false")
	}
	if c.locks && o.NoLock {
		out = append(out, "-lock=false")
	}
	if c.backs && o.Backup != "" {
		out = append(out, "-backup="+o.Backup)
	}
	if c.varFiles {
		files, err := o.VarFiles.args()
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	out = append(out, flags...)
	if len(operands) > 0 {
		out = append(append(out, "--"), operands...)
	}
	return out, nil
}

// breakGlassCommand finds the command at the beginning of args.
func breakGlassCommand(args []string) (BreakGlassCommand, []string, error) {
	var known []string
	for _, c := range breakGlassCommands() {
		words := strings.Fields(c.Words)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return c, args[len(words):], nil
		}
		known = append(known, c.Words)
	}
	return BreakGlassCommand{}, nil, fault.New(fault.Invalid, "CommandInvalid", fmt.Errorf("%.80q is no command of a break-glass session; these are: %s", strings.Join(args, " "), strings.Join(known, ", ")))
}

// split checks what follows a command and tells options from operands.
func (c BreakGlassCommand) split(rest []string) (flags, operands []string, err error) {
	for _, a := range rest {
		if len(operands) == 0 && strings.HasPrefix(a, "-") {
			if err := c.flag(a); err != nil {
				return nil, nil, err
			}
			flags = append(flags, "-"+strings.TrimLeft(a, "-"))
			continue
		}
		if c.operand == nil || len(operands) >= c.most {
			return nil, nil, fault.New(fault.Invalid, "CommandInvalid", fmt.Errorf("%s does not take %.80q", c.usage(), a))
		}
		if err := c.operand(len(operands), a); err != nil {
			return nil, nil, err
		}
		operands = append(operands, a)
	}
	if len(operands) < c.least {
		return nil, nil, fault.New(fault.Invalid, "CommandInvalid", fmt.Errorf("something is missing: %s", c.usage()))
	}
	return flags, operands, nil
}

// flag checks one option: -name, or -name=value. A value never stands alone.
func (c BreakGlassCommand) flag(a string) error {
	name, value, valued := strings.Cut(strings.TrimLeft(a, "-"), "=")
	check, known := c.flags[name]
	if !known || valued != (check != nil) {
		return fault.New(fault.Invalid, "CommandInvalid", fmt.Errorf("%s does not take the option %.80q here", c.Words, a))
	}
	if check == nil {
		return nil
	}
	return check(value)
}

func (c BreakGlassCommand) usage() string { return strings.TrimSpace(c.Words + " " + c.Takes) }

// checkImportID reports whether id can be what an object is imported by.
func checkImportID(id string) error {
	if id == "" || len(id) > 1024 || !plain(id) || strings.HasPrefix(id, "-") {
		return invalid("identifier to import by", id)
	}
	return nil
}

func oneOf(s string, all ...string) error {
	if !slices.Contains(all, s) {
		return invalid("value; it is one of "+strings.Join(all, ", "), s)
	}
	return nil
}

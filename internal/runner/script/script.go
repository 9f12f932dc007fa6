// Package script is what a script of a user needs beside its sandbox: the program that
// becomes its interpreter, the programs terraform and tofu that it calls, and the
// processes that belong to it.
//
//	supervisor                                     sandbox of the run
//	Processes  ── starts ─────────────────────────▶  Main: becomes bash … of the script
//	Listener   ◀── Call: arguments, environment,  ──  terraform apply (Main: the shim)
//	               directory, standard streams
//	           ── starts the engine for it ───────▶  engine, with these streams
//	           ── Result ─────────────────────────▶  the shim ends as the engine did
//
// So an engine is no child of the script. A script that is killed, or gives up waiting,
// takes no apply with it, and an engine gets one interrupt however many are sent.
//
// It decides nothing about a run: which calls are answered and how is the supervisor's
// part. Start reading at Main, then Listener and Processes.
package script

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Names are those of the programs that a script finds in its PATH.
var names = []string{"terraform", "tofu"}

// Names are the programs that a script finds in its PATH: links to this binary.
func Names() []string { return slices.Clone(names) }

// Become is the argument by which a binary that calls Main knows that it is to become
// the interpreter of the script whose path follows, with its arguments; or the script
// itself, if that is a program.
const Become = "become-script"

// BecomeProgram is the argument by which such a binary knows that it is to become the program
// that follows, found in its PATH, with its arguments.
const BecomeProgram = "become-program"

// Print is the argument by which such a binary knows that it is to print the file whose path
// follows, which only programs in the sandbox may see.
const Print = "print-file"

// Main must be called early in the main function of a binary that supervises runs. In
// the programs of a script it never returns; else it does nothing.
func Main() {
	switch {
	case len(os.Args) > 0 && slices.Contains(names, filepath.Base(os.Args[0])):
		os.Exit(call(filepath.Base(os.Args[0]), os.Args[1:]))
	case len(os.Args) >= 3 && os.Args[1] == Become:
		fmt.Fprintln(os.Stderr, "terrier:", become(os.Args[2], os.Args[3:]))
		os.Exit(notFound)
	case len(os.Args) >= 3 && os.Args[1] == BecomeProgram:
		fmt.Fprintln(os.Stderr, "terrier:", becomeProgram(os.Args[2], os.Args[3:]))
		os.Exit(notFound)
	case len(os.Args) == 3 && os.Args[1] == Print:
		if err := printFile(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func printFile(file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(os.Stdout, in)
	return err
}

// notFound is the exit code of a shell that does not find a program.
const notFound = 127

// maxFirstLine is how much of a script's first line counts, more than a kernel reads.
const maxFirstLine = 4096

// program begins the files that a kernel runs itself.
const program = "\x7fELF"

// become turns this process into the interpreter of a script. It returns only if there
// is none.
func become(file string, args []string) error {
	first, err := firstLine(file)
	if err != nil {
		return fmt.Errorf("reading the script: %w", err)
	}
	if bytes.HasPrefix(first, []byte(program)) {
		err := sandbox.Become(append([]string{file}, args...))
		return fmt.Errorf("the script %s is a program that cannot be started: %w. It needs the right to be executed, and everything that it is linked to", filepath.Base(file), err)
	}
	asked := interpreter(first)
	for i, argv := range candidates(asked, os.Getenv("PATH")) {
		if i > 0 || len(asked) == 0 {
			if info, err := os.Stat(argv[0]); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if len(asked) > 0 {
				fmt.Fprintf(os.Stderr, "terrier: there is no %s here, which the script names in its first line. %s runs the script.\n", asked[0], argv[0])
			}
		}
		_ = sandbox.Become(slices.Concat(argv, []string{file}, args))
	}
	return fmt.Errorf("there is neither bash nor sh in the image or on the machine of this run. Name an interpreter that is there in the first line of the script, as in #!/usr/bin/python3")
}

// becomeProgram turns this process into a program of the image. It returns only if there is
// none.
func becomeProgram(name string, args []string) error {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		at := name
		if !filepath.IsAbs(name) {
			at = filepath.Join(dir, name)
		}
		if info, err := os.Stat(at); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		err := sandbox.Become(append([]string{at}, args...))
		return fmt.Errorf("the program %s cannot be started: %w", at, err)
	}
	return fmt.Errorf("there is no program %s in the image or on the machine of this run. Name one that is there, or a file of the source by its path", name)
}

func firstLine(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, maxFirstLine)
	n, err := f.Read(head)
	if n == 0 && err != nil {
		return nil, err
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return line, nil
}

// interpreter is what the first line of a script names, as a kernel reads it: a path and
// at most one argument. A carriage return at the end of the line is no part of it.
func interpreter(first []byte) []string {
	text, ok := strings.CutPrefix(string(first), "#!")
	if !ok {
		return nil
	}
	path, argument, _ := strings.Cut(strings.Trim(text, " \t\r"), " ")
	if i := strings.IndexByte(path, '\t'); i >= 0 {
		path, argument = path[:i], path[i+1:]+" "+argument
	}
	if path == "" {
		return nil
	}
	if argument = strings.Trim(argument, " \t\r"); argument == "" {
		return []string{path}
	}
	return []string{path, argument}
}

// candidates are the interpreters to try: the one that the script names, then bash and
// sh where the path has them.
func candidates(asked []string, path string) [][]string {
	var all [][]string
	if len(asked) > 0 {
		all = append(all, asked)
	}
	for _, shell := range []string{"bash", "sh"} {
		for _, dir := range filepath.SplitList(path) {
			if filepath.IsAbs(dir) {
				all = append(all, []string{filepath.Join(dir, shell)})
			}
		}
	}
	return all
}

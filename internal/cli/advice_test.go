package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each command and flag that a message of the product, a document or an example names is one
// that the command line has, with as many arguments as it takes: what Terrier advises
// can be typed.
func TestAdviceCanBeTyped(t *testing.T) {
	root, named := commandLine(t), 0
	for _, text := range advice(t) {
		for _, c := range commandsIn(text) {
			named++
			if err := typed(root, c); err != nil {
				t.Errorf("%s names %q: %v", text.file, c.text, err)
			}
		}
	}
	if named < 1000 {
		t.Errorf("%d commands are named, want the more than thousand of the messages, documents and examples", named)
	}
}

// What cannot be typed is found, wherever it stands.
func TestAdviceThatCannotBeTypedIsFound(t *testing.T) {
	root := commandLine(t)
	for text, want := range map[string]string{
		"run `terrier unlock STACK`":                         "unknown command",
		"run `terrier state force-unlock STACK`":             "unknown command",
		"Break the lock with terrier force-unlock.":          "--lock-id",
		"Break it with terrier force-unlock STACK.":          "--lock-id",
		"Break it with terrier force-unlock --lock-id ID.":   "argument",
		"run terrier unlock STACK":                           "unknown command",
		"run terrier refresh, or wait":                       "unknown command",
		"run terrier repair --approve %s.":                   "argument",
		"run terrier state push %s.":                         "argument",
		"see terrier state unlok STACK":                      "unknown command",
		"Show it with terrier explain %s --verbosely.":       "--verbosely",
		"`terrier get -Z`":                                   "-Z",
		"```sh\nterrier approve network main --quickly\n```": "--quickly",
		"```sh\nterrier get a b c d\n```":                    "4 arguments given",
		"```console\n$ terrier get 'a b' c\n```":             "2 arguments given",
		"```sh\nkubectl get pods && terrier stat x\n```":     "unknown command",
		"run terrier registry --prot 1 and terrier get":      "--prot",
	} {
		found := ""
		for _, c := range commandsIn(adviceText{"a", text, strings.Contains(text, "`")}) {
			if err := typed(root, c); err != nil {
				found += err.Error()
			}
		}
		if !strings.Contains(found, want) {
			t.Errorf("%q: found %q, want %q", text, found, want)
		}
	}
	for _, text := range []string{
		"break it with terrier force-unlock STACK --lock-id ID.", "`terrier force-unlock`", "run terrier get -A -o json | jq .", "terrier logs shows the log",
		"the field status.terrier of the object", "kubectl -n terrier get pods", "terrier retained state %s -n %s --uid %s", "(terrier explain %[1]s -n %[2]s)",
		"`terrier up --quickstart`, and `terrier controller --max-runs 4`", "```\n$ terrier plan network > plan.txt\n```", "`terrier explain -f -`", "```console\n$ terrier explain app\nNext step:  View it with terrier drift show. Approve it\n```", "`terrier logs -f`",
		"```\nterrier reject net -m 'not now; it is late'\n```", "`terrier inventory {--list | --host NAME}`", "terrier break-glass STACK -- state list",
	} {
		for _, c := range commandsIn(adviceText{"a", text, strings.Contains(text, "`")}) {
			if err := typed(root, c); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

// commandLine is the whole command line. The commands of package app, which this one cannot
// import, have the flags that their files name.
func commandLine(t *testing.T) *cobra.Command {
	t.Helper()
	registry := appCommand(t, "registry", cobra.NoArgs, "../app/registryserver/*.go")
	for _, below := range []string{"import DIR", "export DIR"} {
		registry.AddCommand(appCommand(t, below, cobra.ExactArgs(1), "../app/registryserver/*.go"))
	}
	return newProgram(Env{}).root([]*cobra.Command{appCommand(t, "up", cobra.NoArgs, "../app/*.go"), appCommand(t, "controller", cobra.NoArgs, "../app/*.go"), registry})
}

// flagName is a flag in the tag of a field, or as it is made.
var flagName = regexp.MustCompile(`flag:"([a-z0-9-]+)"|Flags\(\)\.\w+Var\(&\w+, "([a-z0-9-]+)"`)

func appCommand(t *testing.T, use string, args cobra.PositionalArgs, files string) *cobra.Command {
	t.Helper()
	c := &cobra.Command{Use: use, Args: args, RunE: func(*cobra.Command, []string) error { return nil }}
	paths, err := filepath.Glob(files)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s: %v", files, err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flagName.FindAllStringSubmatch(string(source), -1) {
			name, short := m[1]+m[2], ""
			if name == "output" {
				short = "o"
			}
			if c.Flags().Lookup(name) == nil {
				c.Flags().StringP(name, short, "", "")
			}
		}
	}
	return c
}

// needed are the flags without which a command does nothing.
var needed = map[string]string{"terrier force-unlock": "lock-id", "terrier registry tokens create": "name"}

// notCommands are the words that follow the name of the program, or of a namespace, a role or a
// package with the same name, in sentences that name no command.
var notCommands = strings.Fields("evaluate-policies and allowed blob bound browser by calls cannot control control-plane derived external-secrets for from have kubectl make name of oci path program replica run sign-in that to ttl with without")

// adviceText is a text that users read: of a document, where commands stand in code, or of
// the product.
type adviceText struct {
	file, text string
	document   bool
}

// namedCommand is a command as a text names it.
type namedCommand struct {
	text  string
	words []string // after the name of the program
	how   naming
	code  bool // else it stands in a sentence, which goes on
}

// naming is how a text names a command.
type naming int

const (
	mentioned naming = iota // by its name, maybe with a flag, in a document
	advised                 // the product says what to run
	written                 // as it is typed, in a block of code or an example
)

// advice are all texts in which commands are named.
func advice(t *testing.T) []adviceText {
	t.Helper()
	var texts []adviceText
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if slices.Contains([]string{"bin", ".git", "test", "testdata", "node_modules", "testkit"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		switch ext := filepath.Ext(path); {
		case strings.HasSuffix(path, "_test.go"), name == "CHANGELOG.md":
		case ext == ".go":
			texts = append(texts, literals(t, path, name)...)
		case slices.Contains([]string{".md", ".yaml", ".yml", ".tpl", ".txt", ".html", ".js", ".sh", ".tf"}, ext):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts = append(texts, adviceText{name, string(b), ext == ".md"})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// literals are the texts of a Go file. What is put between two texts is an argument.
func literals(t *testing.T, path, name string) []adviceText {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var texts []adviceText
	var whole func(e ast.Expr) string
	whole = func(e ast.Expr) string {
		switch x := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(x.Value); x.Kind == token.STRING && err == nil {
				return s
			}
		case *ast.ParenExpr:
			return whole(x.X)
		case *ast.BinaryExpr:
			if x.Op == token.ADD {
				return whole(x.X) + whole(x.Y)
			}
		}
		return "X"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		_, literal := n.(*ast.BasicLit)
		sum, joined := n.(*ast.BinaryExpr)
		if joined = joined && sum.Op == token.ADD; literal || joined {
			if text := whole(e); strings.Contains(text, "terrier ") {
				if strings.HasSuffix(text, " ") {
					text += "…" // what follows is put behind it
				}
				texts = append(texts, adviceText{name, text, false})
			}
		}
		return !joined
	})
	return texts
}

var (
	// programName is the name of the program before a command; what stands before it is not a part
	// of another word.
	programName = regexp.MustCompile("(^|[\\s`\"'($])terrier ")
	codeSpan    = regexp.MustCompile("(?s)```.*?```|``[^`]+``|`[^`\n]+`")
	word        = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	// argument is a word of a sentence that is no part of the sentence.
	argument = regexp.MustCompile(`^([A-Z][A-Z0-9_/.:-]*|X|\d[\w.]*|%(\[\d\])?[sqdv]|[<{\[].*|.*[/=@].*|.*\w\.\w.*|"[^"]*")$`)
	// typedAfter is what stands before a command in a line that is typed.
	typedAfter = regexp.MustCompile(`(^|[$|;(!]|&&|do|then|if|[A-Z_]+=\S*)\s*$`)
)

// commandsIn are the commands that a text names.
func commandsIn(a adviceText) []namedCommand {
	var found []namedCommand
	in := func(text string, how naming, prompts bool) {
		for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
			for _, at := range programName.FindAllStringIndex(line, -1) {
				before := strings.Fields(line[:at[0]])
				if len(before) > 0 && (strings.HasPrefix(before[len(before)-1], "-") || slices.Contains([]string{"namespace", "kubectl", "helm"}, before[len(before)-1])) {
					continue // the namespace or release terrier
				}
				c := namedCommand{how: how, code: how == mentioned && len(before) == 0}
				if how == written {
					c.code = typedAfter.MatchString(line[:at[0]]) && (!prompts || strings.HasPrefix(line, "$ "))
				}
				if how == advised && strings.HasPrefix(line, "  terrier ") {
					c.how, c.code = written, true // an example in the help of a command
				}
				if !c.code && how == written {
					c.how = mentioned // by what a command printed
				}
				rest := line[at[1]:]
				if opened := line[at[0]]; strings.ContainsRune("`\"'", rune(opened)) {
					rest, _, _ = strings.Cut(rest, string(opened))
				}
				if c.words = typedWords(rest, c.code); len(c.words) > 0 {
					c.text = "terrier " + strings.Join(c.words, " ")
					found = append(found, c)
				}
			}
		}
	}
	if !a.document {
		in(a.text, advised, false)
		return found
	}
	prose := codeSpan.ReplaceAllStringFunc(a.text, func(span string) string {
		if block, ok := strings.CutPrefix(span, "```"); ok {
			in(strings.TrimSuffix(block, "```"), written, strings.Contains(block, "\n$ "))
		} else {
			in(strings.Trim(span, "`"), mentioned, false)
		}
		return " "
	})
	for _, line := range strings.Split(prose, "\n") {
		in("… "+line, mentioned, false)
	}
	return found
}

// shellWords are the words of a line: one in quotes may have spaces.
var shellWords = regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+|["']`)

// typedWords are the words of a command at the beginning of a text. In code it is all up to a comment
// or another command; in a sentence it ends where the sentence goes on.
func typedWords(text string, code bool) []string {
	var words []string
	path := true // the words of the command itself
	for _, w := range shellWords.FindAllString(text, -1) {
		if strings.HasPrefix(w, "#") || strings.ContainsAny(w[:1], "|>&;") || strings.HasPrefix(w, "2>") {
			break
		}
		bare := strings.TrimRight(w, ".,;:)!?`*")
		if quoted := strings.ContainsAny(w[len(w)-1:], "\"'"); quoted && !strings.ContainsAny(w[:len(w)-1], "\"'") {
			bare = strings.TrimRight(w, ".,;:)!?\"'`*")
		}
		if w == "." || strings.HasSuffix(w, "...") {
			bare = w
		}
		if bare == "" {
			break
		}
		if !code {
			flag := strings.HasPrefix(bare, "-")
			afterFlag := len(words) > 0 && strings.HasPrefix(words[len(words)-1], "-")
			path = path && word.MatchString(bare)
			if !path && !flag && !afterFlag && !argument.MatchString(bare) {
				break
			}
		}
		words = append(words, bare)
		if bare != w && (!code || strings.ContainsAny(w[len(bare):], ";)`")) {
			break
		}
	}
	return words
}

// typed returns an error if the command line does not take a command.
func typed(root *cobra.Command, c namedCommand) error {
	words := c.words
	if strings.HasPrefix(words[0], "-") || !word.MatchString(words[0]) {
		return nil // a namespace of this name, or the program with what a user chooses
	}
	if slices.Contains(notCommands, words[0]) {
		return nil
	}
	cmd := root
	for len(words) > 0 && cmd.HasSubCommands() && word.MatchString(words[0]) {
		next := slices.IndexFunc(cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == words[0] || sub.HasAlias(words[0]) })
		if next < 0 {
			named := c.code || len(words) > 1 && !word.MatchString(words[1]) && !slices.Contains(notCommands, words[0])
			if cmd == root || named && cmd.ValidateArgs(words[:1]) != nil {
				return fmt.Errorf("unknown command %q of %s", words[0], cmd.CommandPath())
			}
			break
		}
		cmd, words = cmd.Commands()[next], words[1:]
	}
	args, given, open, err := arguments(cmd, words, c.code)
	if err != nil {
		return err
	}
	if flag := needed[cmd.CommandPath()]; flag != "" && !slices.Contains(given, flag) && !open && (c.how != mentioned || len(args) > 0) {
		return fmt.Errorf("%s does nothing without --%s", cmd.CommandPath(), flag)
	}
	switch {
	case open, slices.Contains(given, "help"), cmd.HasSubCommands() && len(args) > 0 && !word.MatchString(args[0]):
		return nil
	case len(args) == 0 && (len(given) == 0 || c.how == mentioned):
		return nil // the name of the command
	}
	return cmd.ValidateArgs(args)
}

// arguments are what follows the name of a command: its arguments, and the names of its flags. Open
// says that the text leaves something out.
func arguments(cmd *cobra.Command, words []string, code bool) (args, given []string, open bool, err error) {
	cmd.InitDefaultHelpFlag()
	flags := cmd.Flags()
	flags.AddFlagSet(cmd.InheritedFlags())
	for i := 0; i < len(words); i++ {
		w := strings.Trim(words[i], `"'`)
		value := i+1 < len(words) && (words[i+1] == "-" || !strings.HasPrefix(words[i+1], "-")) // the next word is a value, if the flag takes one
		switch {
		case w == "--":
			return append(args, words[i+1:]...), given, cmd.Name() == "break-glass" || open, nil
		case strings.HasSuffix(w, "…"), strings.HasSuffix(w, "..."), strings.HasPrefix(w, "["), strings.HasPrefix(w, "{"), strings.HasPrefix(w, "$"):
			open = true
		case strings.HasPrefix(w, "--"):
			name, _, valued := strings.Cut(w[2:], "=")
			f := flags.Lookup(name)
			if f == nil {
				return nil, nil, false, fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
			}
			given = append(given, name)
			if !valued && f.NoOptDefVal == "" && value {
				i++
			}
		case strings.HasPrefix(w, "-") && w != "-":
			f := flags.ShorthandLookup(w[1:2])
			if f == nil {
				return nil, nil, false, fmt.Errorf("%s has no flag %s", cmd.CommandPath(), w)
			}
			given = append(given, f.Name)
			if len(w) == 2 && f.NoOptDefVal == "" && value {
				i++
			}
		case !code && word.MatchString(w):
			return args, given, open, nil // the sentence goes on
		default:
			args = append(args, w)
		}
	}
	return args, given, open, nil
}

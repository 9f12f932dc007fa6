package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// word is a way of speaking that users of Terraform, Kubernetes and Flux would
// have to learn, and what they call the thing.
type word struct {
	pattern string // matched without regard to case
	use     string
}

// words holds them. A pattern is precise enough to let a legitimate use pass;
// what remains is an entry of wordsLeft.
var words = []word{
	// What Terrier does.
	{`\bkeep(s|ing)? ([\w'-]+ ){1,6}true\b|\bstacks? (that )?(is|are|stays?) true\b`, "reconcile stacks; settled"},
	{`\bmend(s|ed|ing)?\b|\b(put|puts|putting|set|sets) right\b`, "fix, remediate, repair"},
	{`\blook(s|ed|ing)? for drift\b|\blooked at (every|when|last|again|together)\b|\b(a|an|each|every|next|last|first|one|such a|of|early) looks?\b|\blooks? (is|are) made\b`, "drift check, check interval, next check"},
	{`\bthe world\b`, "the resources, the infrastructure; drifted resources"},
	{`\b(take|takes|taken|taking|took) ([\w-]+ ){0,2}down\b`, "destroy, destroyed"},
	{`\b(take|takes|taken|taking|took) ([\w-]+ ){0,3}away\b`, "delete, remove, revoke"},
	{`\blet(s|ting)? go\b`, "remove the finalizer; release"},
	{`\bat work\b`, "running"},
	{`\b(at rest|comes? to rest|rests)\b`, "idle, settled"},
	{`\bcarr(y|ies|ied|ying) out (the|a) repair\b`, "apply the repair plan"},
	{`\bplan(s|ned|ning)? anew\b|\banew\b`, "replan; again"},
	// What it shows and knows.
	{`\bhow (it|they|one|each|[\w-]+ [\w-]+) stands?\b`, "status"},
	{`\bplans? that waits?\b|\bwaiting plans?\b`, "pending plan"},
	{`(^|[^-\w])gaps?($|[^-\w])|\bin no state\b`, "untracked resources"},
	{`\bleft behind\b`, "retained resources; left in the cluster"},
	{`\b(hold|holds|holding|held) ([\w-]+ )?back\b`, "blocked by a guard; blocked, delayed"},
	{`\bhad no rows\b`, "the query returned no rows"},
	{`\bthe matter\b`, "the reason, the failure"},
	{`\bwhether that is what was written\b`, "show and verify the audit log"},
	{`(^|[^-\w])journals?($|[^-\w])`, "audit log"},
	{`\bbasis\b`, "plan inputs"},
	{`(^|[^-\w])(box|boxes)($|[^-\w])|\bwarden\b`, "sandbox"},
	// What a person does.
	{`(^|[^-\w/])glass($|[^-\w])|\bby hand\b`, "break-glass session; manually"},
	{`(^|>)leave it(<|$)`, "cancel"},
	{`\b(make it|made) the newest\b`, "roll back to this version"},
	{`\b(bring|brings|bringing|brought) (over|a state|the state)\b`, "upload state, push state"},
	{`\bticked\b|\btick the\b`, "selected"},
	{`\bturn(s|ed)? down\b`, "reject"},
	{`\bjump\b`, "search"},
	{`\bagree(s|d)? to a state\b|\bstate that should not be there\b`, "accept an unexpected state"},
	{`\bforbids it\b`, "permission denied"},
	// What hides its subject.
	{`\b(some|no|every|any)body('s)?\b|\bwho(m|se)?ever\b`, "name it: user, operator, controller, engine, supervisor, API server"},
	{`\bthat which\b|\bwhat goes\b`, "name it"},
}

// oldNames are identifiers that have another name now. Documents about
// compatibility list them.
var oldNames = []word{
	{`\bStateWentBack\b`, "StateRegressed"},
	{`\bChangesComing\b`, "SourceDebounced"},
	{`\bGlassMended\b`, "BreakGlassEnded"},
	{`\bGlassWhole\b`, "NoBreakGlassSession"},
	{`\bforget-gap\b`, "ignore-untracked"},
}

// usersReadTheirWords looks for words in what users read (pages, texts of the code,
// documents, examples and alerts) and in all comments.
func usersReadTheirWords(t tree) []problem {
	all := compiled(words)
	old := compiled(oldNames)
	var found []problem
	for _, f := range t.files {
		list := all
		if !under(f.path, "docs/compatibility.md", "docs/compatibility-tenants.md", "CHANGELOG.md") {
			list = append(list[:len(list):len(list)], old...)
		}
		for _, s := range said(t, f) {
			for _, w := range list {
				for _, at := range w.pattern.FindAllStringIndex(s.text, -1) {
					hit := strings.Trim(s.text[at[0]:at[1]], " \"'`()<>,.;:!?*")
					if lower := ": " + strings.ToLower(hit); !wordsLeft.has(t, f.dir()+lower) && !wordsLeft.has(t, f.path+lower) {
						line := s.line + strings.Count(s.lines[:at[0]], "\n")
						found = append(found, problem{f.path, line, fmt.Sprintf("says %q: %s", hit, w.use)})
					}
				}
			}
		}
	}
	return found
}

type compiledWord struct {
	pattern *regexp.Regexp
	use     string
}

func compiled(list []word) []compiledWord {
	var all []compiledWord
	for _, w := range list {
		all = append(all, compiledWord{regexp.MustCompile(`(?i)` + w.pattern), w.use})
	}
	return all
}

// saying is a text that users read. In text, lines are joined, so that a
// pattern finds words that continue in the next one; lines is as long as it.
type saying struct {
	line        int
	text, lines string
}

// said lists what users and engineers read of a file. Of code and scripts that is
// every comment, and every string with a space in it. Generated definitions say what
// comments of the code say.
func said(t tree, f file) []saying {
	switch {
	case f.syntax != nil:
		if f.generated {
			return nil
		}
		var all []saying
		for _, group := range f.syntax.Comments {
			var lines []string
			for _, c := range group.List {
				lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), " "))
			}
			text := strings.Join(lines, "\n")
			all = append(all, saying{t.fset.Position(group.Pos()).Line, joined(text), text})
		}
		if !product(f) {
			return all
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, err := strconv.Unquote(l.Value)
				if err == nil && strings.Contains(strings.TrimSpace(text), " ") {
					if l.Value[0] != '`' {
						text = strings.ReplaceAll(text, "\n", " ") // the line of the literal is where it is
					}
					all = append(all, saying{t.fset.Position(l.Pos()).Line, joined(text), text})
				}
			}
			return true
		})
		return all
	case under(f.path, "config/crd"):
		return nil
	case path.Ext(f.path) == ".css":
		return nil
	case path.Ext(f.path) == ".js":
		var all []saying
		for _, at := range scriptString.FindAllStringIndex(f.text, -1) {
			if text := f.text[at[0]:at[1]]; strings.Contains(text, " ") {
				all = append(all, saying{1 + strings.Count(f.text[:at[0]], "\n"), joined(text), text})
			}
		}
		return all
	case path.Ext(f.path) == ".md", under(f.path, "internal/web/pages/templates", "examples", "config"):
		text := namedTest.ReplaceAllStringFunc(f.text, func(s string) string { return strings.Repeat(" ", len(s)) })
		return []saying{{1, joined(text), text}}
	default:
		return nil
	}
}

// namedTest is a test as documents name it, with the case that it has.
var namedTest = regexp.MustCompile("`Test[^`\n]*`|`…/[^`\n]*`")

// scriptString is a string of a script that ends in its line.
var scriptString = regexp.MustCompile("\"[^\"\n]*\"|`[^`\n]*`")

func joined(text string) string { return strings.ReplaceAll(text, "\n", " ") }

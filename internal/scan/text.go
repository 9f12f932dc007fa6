package scan

import (
	"regexp"
	"strings"
	"sync"
)

var (
	// assignment is NAME=VALUE or NAME: VALUE on a line of its own.
	assignment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*(?:(?:export|set|ENV|ARG|-|local|readonly|declare|env|-e|--env)\s+)*["']?([A-Za-z_][\w.\-/]*)["']?\s*(=|:|=>)\s*(.*?)\s*[,;]?\s*$`)
	})
	// setting is NAME VALUE, as files of Spark have it.
	setting = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([A-Za-z_][\w-]*(?:\.[\w-]+)+)\s+(\S+)\s*$`) })
	// property is one of Hadoop's files.
	property = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`<name>\s*([^<>]+?)\s*</name>\s*<value>\s*([^<>]*?)\s*</value>`)
	})
	// userinfo is a password in a URL.
	userinfo = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@"']*:([^/\s@"']+)@`)
	})
	// parameter is NAME=VALUE within a line: of a connection string, a URL or a command.
	parameter = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[\s;?&,"'(-])([A-Za-z_][\w.-]*)=("[^"]*"|'[^']*'|[^;&\s"',)]+)`)
	})
	// traversal is an expression of code, and no literal.
	traversal = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[^\]]*\])+$|^[A-Za-z_][\w.]*\(|^[\[{]|^[|>][+-]?$`)
	})
)

// text scans a text line by line. Its first line is that of the file with this number.
func (s *scanner) text(p place, content string, first int) {
	for i, line := range strings.Split(content, "\n") {
		if len(tokensIn(line)) == 0 { // raw finds them
			s.textLine(p, line, first+i, first+i)
		}
	}
	s.properties(p, content, func(i int) int { return first + i })
}

// textLine scans one line of a text that begins at another line.
func (s *scanner) textLine(p place, line string, at, begin int) {
	p.all = ""
	for _, m := range []*regexp.Regexp{assignment(), setting()} {
		part := m.FindStringSubmatch(line)
		if part == nil {
			continue
		}
		name, value := part[1], part[len(part)-1]
		quoted := unquoted(value)
		if quoted == value && traversal().MatchString(value) {
			continue
		}
		if quoted == value { // a comment may follow
			quoted, _, _ = strings.Cut(value, " #")
			quoted = unquoted(strings.TrimSpace(quoted))
		}
		if !strings.ContainsAny(quoted, " \t") && holdsSecret(name, quoted, p.strict) {
			s.add(p.below("["+name+"]"), RuleName, Mask, at, begin)
			return
		}
	}
	s.connection(p, line, at, begin)
}

// connection finds passwords in URLs, connection strings and arguments.
func (s *scanner) connection(p place, line string, at, begin int) {
	for _, m := range userinfo().FindAllStringSubmatch(line, -1) {
		if isLiteral(m[1]) {
			s.add(p, RuleConnection, Mask, at, begin)
			return
		}
	}
	line = strings.ReplaceAll(line, "--from-literal=", " ") // of kubectl, before NAME=VALUE
	for _, m := range parameter().FindAllStringSubmatch(line, -1) {
		name, value := m[1], unquoted(m[2])
		if strengthOf(name) != noSecret && !traversal().MatchString(m[2]) && holdsSecret(name, value, false) {
			s.add(p.below("["+name+"]"), RuleConnection, Mask, at, begin)
			return
		}
	}
}

// properties finds the settings of a file of Hadoop, whose value may be on the next line.
func (s *scanner) properties(p place, content string, lineOf func(int) int) {
	if !strings.Contains(content, "<value>") {
		return
	}
	p.all = ""
	for _, m := range property().FindAllStringSubmatchIndex(content, -1) {
		name, value := content[m[2]:m[3]], content[m[4]:m[5]]
		if line := lineOf(strings.Count(content[:m[4]], "\n")); holdsSecret(name, value, false) {
			s.add(p.below("["+name+"]"), RuleName, Mask, line, line)
		}
	}
}

// fence begins and ends code in Markdown.
const fence = "```"

// markdown scans the blocks of code in a page, each as what it is.
func (s *scanner) markdown() error {
	forms := map[string]form{
		"yaml": formYAML, "yml": formYAML, "json": formJSON, "hcl": formHCL, "tf": formHCL, "terraform": formHCL, "tfvars": formVars,
		"sh": formText, "bash": formText, "shell": formText, "console": formText, "env": formText, "properties": formText, "ini": formText, "toml": formText, "dotenv": formText,
	}
	begin, language := 0, ""
	for i, line := range s.lines {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, fence):
		case begin == 0:
			language, _, _ = strings.Cut(strings.ToLower(strings.TrimLeft(line, "`")), " ")
			begin = i + 1
		default:
			f, known := forms[language]
			if language == "" {
				f, known = guessed([]byte(strings.Join(s.lines[begin:i], "\n"))), true
			}
			if known {
				s.block(f, begin, i)
			}
			begin = 0
		}
	}
	return nil // a block that cannot be parsed is an excerpt: it was scanned line by line
}

// block scans the lines from begin to end of a page.
func (s *scanner) block(f form, begin, end int) {
	in := &scanner{file: s.file, lines: s.lines[begin:end]}
	content := strings.Join(in.lines, "\n")
	if err := in.scan(f, []byte(content)); err == nil && f == formYAML && in.maps == 0 {
		in.text(place{kind: Text}, content, 1)
	}
	for _, found := range in.found {
		found.Line, found.begin = found.Line+begin, found.begin+begin
		s.found = append(s.found, found)
	}
}

package engine

import (
	"errors"
	"fmt"
	"strings"
)

// The little of the configuration language that is needed to tell which blocks
// a file has: comments, strings with templates, heredocs, nesting. A whole
// parser would double the supervisor's start-up time, which every run pays
// several times. Whatever it does not understand is an error, and the
// caller goes on without an answer.

// item is an attribute or a block of a body.
type item struct {
	name   string
	line   int
	block  bool
	labels []string
	body   []item  // of a block
	value  []token // of an attribute
}

// token is a piece of a file.
type token struct {
	kind byte // one of the below, or the character itself
	text string
	line int
}

const (
	word     = 'w'
	text     = 's' // a quoted string without escapes and templates
	template = 't' // any other string
	newline  = '\n'
)

// maxNesting is far more than people write.
const maxNesting = 200

// literal is the value of an attribute that is a plain string.
func (i item) literal() (string, bool) {
	if len(i.value) != 1 || i.value[0].kind != text {
		return "", false
	}
	return i.value[0].text, true
}

// written is the value of an attribute as it is written: the text of a plain string, or the
// expression on one line.
func (i item) written() string {
	if s, ok := i.literal(); ok {
		return s
	}
	var b strings.Builder
	for _, t := range i.value {
		switch t.kind {
		case newline:
			b.WriteByte(' ')
		case text, template:
			b.WriteString(`"` + t.text + `"`)
		default:
			b.WriteString(t.text)
		}
	}
	return b.String()
}

// literals are the plain strings in the value of an attribute.
func (i item) literals() []string {
	var all []string
	for _, t := range i.value {
		if t.kind == text {
			all = append(all, t.text)
		}
	}
	return all
}

// parseSyntax reads the items of a file.
func parseSyntax(src []byte) ([]item, error) {
	tokens, err := scan(string(src))
	if err != nil {
		return nil, err
	}
	p := parser{tokens: tokens}
	items, err := p.body(0)
	if err == nil && p.at < len(p.tokens) {
		err = errors.New("a closing brace too many")
	}
	return items, err
}

type parser struct {
	tokens []token
	at     int
}

func (p *parser) kind() byte {
	if p.at < len(p.tokens) {
		return p.tokens[p.at].kind
	}
	return 0
}

// body reads items up to a closing brace, which it leaves, or the end.
func (p *parser) body(depth int) ([]item, error) {
	if depth > maxNesting {
		return nil, errors.New("nested too deeply")
	}
	var items []item
	for {
		for p.kind() == newline || p.kind() == ',' { // commas stand between the items of an object
			p.at++
		}
		if k := p.kind(); k == 0 || k == '}' {
			return items, nil
		}
		i, err := p.item(depth)
		if err != nil {
			return nil, err
		}
		items = append(items, i)
	}
}

func (p *parser) item(depth int) (item, error) {
	if k := p.kind(); k != word && k != text {
		return item{}, fmt.Errorf("%q where a name is expected", p.tokens[p.at].text)
	}
	i := item{name: p.tokens[p.at].text, line: p.tokens[p.at].line}
	p.at++
	if k := p.kind(); k == '=' || k == ':' {
		p.at++
		var err error
		i.value, err = p.value()
		return i, err
	}
	for p.kind() == word || p.kind() == text {
		i.labels = append(i.labels, p.tokens[p.at].text)
		p.at++
	}
	if p.kind() != '{' {
		return item{}, fmt.Errorf("%s is neither an attribute nor a block", i.name)
	}
	p.at++
	var err error
	if i.body, err = p.body(depth + 1); err != nil {
		return item{}, err
	}
	if p.kind() != '}' {
		return item{}, fmt.Errorf("the block %s has no end", i.name)
	}
	p.at++
	i.block = true
	return i, nil
}

// value reads an expression up to the end of its line, or of the block around
// it.
func (p *parser) value() ([]token, error) {
	start, depth := p.at, 0
	for ; p.at < len(p.tokens); p.at++ {
		switch p.kind() {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			if depth == 0 {
				return p.tokens[start:p.at], nil
			}
			depth--
		case newline, ',':
			if depth == 0 {
				return p.tokens[start:p.at], nil
			}
		}
	}
	if depth > 0 {
		return nil, errors.New("a bracket has no end")
	}
	return p.tokens[start:], nil
}

// object reads the value of an attribute as an object.
func (i item) object() ([]item, error) {
	v := i.value
	if len(v) < 2 || v[0].kind != '{' || v[len(v)-1].kind != '}' {
		return nil, fmt.Errorf("%s is no object", i.name)
	}
	p := parser{tokens: v[1 : len(v)-1]}
	return p.body(0)
}

// scan cuts a file into tokens.
func scan(src string) ([]token, error) {
	var tokens []token
	for line := 1; len(src) > 0; {
		t, n, err := next(src, 0)
		if err != nil {
			return nil, err
		}
		if t.kind != 0 {
			t.line = line
			tokens = append(tokens, t)
		}
		line += strings.Count(src[:n], "\n")
		src = src[n:]
	}
	return tokens, nil
}

// next is the first token of src and its length; a kind of 0 is none. depth is
// how many templates it is in.
func next(src string, depth int) (token, int, error) {
	switch c := src[0]; {
	case c == ' ' || c == '\t' || c == '\r' || strings.HasPrefix(src, "\ufeff"):
		return token{}, 1, nil
	case c == '#', strings.HasPrefix(src, "//"):
		return token{}, upTo(src, "\n"), nil
	case strings.HasPrefix(src, "/*"):
		end := strings.Index(src[2:], "*/")
		if end < 0 {
			return token{}, 0, errors.New("a comment has no end")
		}
		return token{}, end + 4, nil
	case c == '"':
		return quoted(src, depth)
	case strings.HasPrefix(src, "<<"):
		return heredoc(src)
	case isWord(c):
		n := 1
		for n < len(src) && (isWord(src[n]) || src[n] == '-') {
			n++
		}
		return token{kind: word, text: src[:n]}, n, nil
	default:
		return token{kind: c, text: src[:1]}, 1, nil
	}
}

// isWord takes every character beyond ASCII for a letter, and digits too: what
// is a number makes no difference here.
func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func upTo(src, mark string) int {
	if n := strings.Index(src, mark); n >= 0 {
		return n
	}
	return len(src)
}

// quoted reads a string, with the templates in it.
func quoted(src string, depth int) (token, int, error) {
	if depth > maxNesting {
		return token{}, 0, errors.New("nested too deeply")
	}
	kind := byte(text)
	for n := 1; n < len(src); {
		switch {
		case src[n] == '"':
			return token{kind: kind, text: src[1:n]}, n + 1, nil
		case src[n] == '\n':
			return token{}, 0, errors.New("a string has no end")
		case src[n] == '\\':
			kind, n = template, n+2
		case strings.HasPrefix(src[n:], "$${"), strings.HasPrefix(src[n:], "%%{"):
			kind, n = template, n+3
		case strings.HasPrefix(src[n:], "${"), strings.HasPrefix(src[n:], "%{"):
			length, err := interpolation(src[n:], depth+1)
			if err != nil {
				return token{}, 0, err
			}
			kind, n = template, n+length
		default:
			n++
		}
	}
	return token{}, 0, errors.New("a string has no end")
}

// interpolation is the length of a ${…}, which may hold anything.
func interpolation(src string, depth int) (int, error) {
	open := 0
	for n := 1; n < len(src); {
		t, length, err := next(src[n:], depth)
		if err != nil {
			return 0, err
		}
		n += length
		switch t.kind {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return n, nil
			}
		}
	}
	return 0, errors.New("a template has no end")
}

// heredoc reads a <<EOT string, up to the line that holds nothing but its mark.
func heredoc(src string) (token, int, error) {
	end := upTo(src, "\n")
	mark := strings.TrimPrefix(strings.TrimSpace(src[2:end]), "-")
	if mark == "" || strings.ContainsFunc(mark, func(r rune) bool { return r < 0x80 && !isWord(byte(r)) && r != '-' }) {
		return token{}, 0, errors.New("<< is no heredoc")
	}
	for n := end; n < len(src); {
		n++ // the newline
		line := src[n : n+upTo(src[n:], "\n")]
		n += len(line)
		if strings.TrimSpace(line) == mark {
			return token{kind: template}, n, nil
		}
	}
	return token{}, 0, errors.New("a heredoc has no end")
}

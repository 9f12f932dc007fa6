package rows

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// tableName splits "name" or "schema.name" into its parts. Each part may be
// quoted as the database does it. Only plain names are accepted: Config.Query is for
// everything else.
func (d dialect) tableName(s string) ([]string, error) {
	parts := strings.Split(s, ".")
	if len(parts) > 2 {
		return nil, notATable(s)
	}
	for i, part := range parts {
		if n := len(d.quote); len(part) > 2*n && strings.HasPrefix(part, d.quote) && strings.HasSuffix(part, d.quote) {
			part = part[n : len(part)-n]
		}
		if part == "" || len(part) > 128 || !utf8.ValidString(part) || strings.ContainsFunc(part, noName) {
			return nil, notATable(s)
		}
		parts[i] = part
	}
	return parts, nil
}

func notATable(s string) error {
	return refuse(TableRefused, "table %s is not the name of a table or view, nor a schema and a name with a dot between: for anything else use query", quoted(s))
}

// noName reports what cannot be in the name of a table. Everything is quoted, so
// this is not what keeps statements apart; it is what shows that one was meant.
func noName(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("()[]{}\"'`;,*\\/=<>#", r) || !unicode.IsPrint(r)
}

// oneSelect checks that s is one SELECT and can stand in parentheses. The
// database decides what it means, in a transaction that cannot write; this is to
// say plainly what is wrong before it says so in its own way.
func (d dialect) oneSelect(s string) (string, error) {
	s = strings.TrimSpace(s)
	s = strings.TrimSpace(strings.TrimSuffix(s, ";"))
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "", refuse(QueryRefused, "query is no text")
	}
	l := lexer{text: s, dialect: d}
	depth, first := 0, ""
	for {
		token := l.next()
		switch token {
		case "":
			if l.open != "" {
				return "", refuse(QueryRefused, "query has %s that does not end", l.open)
			}
			if depth != 0 {
				return "", refuse(QueryRefused, "query has a parenthesis that is not closed")
			}
			if first == "" {
				return "", refuse(QueryRefused, "query is empty")
			}
			return s, nil
		case ";":
			return "", refuse(QueryRefused, "query is more than one statement: give one SELECT")
		case "/*!":
			return "", refuse(QueryRefused, "query has a comment that would be executed")
		case "(":
			depth++
		case ")":
			if depth--; depth < 0 {
				return "", refuse(QueryRefused, "query closes a parenthesis that it has not opened")
			}
		}
		if word := strings.ToUpper(token); first == "" && token != "(" {
			if first = word; word != "SELECT" && word != "WITH" && word != "VALUES" {
				return "", refuse(QueryRefused, "query begins with %s: give one SELECT", quoted(token))
			}
		}
	}
}

// lexer finds what is outside of texts, quoted names and comments.
type lexer struct {
	dialect
	text string
	at   int
	open string // what was left open at the end
}

// next returns a word, one of ; ( ) /*! or another single character; "" at the end.
func (l *lexer) next() string {
	for l.at < len(l.text) {
		rest := l.text[l.at:]
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case unicode.IsSpace(r):
			l.at += size
		case strings.HasPrefix(rest, "--"), r == '#' && l.backslash:
			l.skip("\n", false)
			l.open = "" // the end of the text ends it as well
		case strings.HasPrefix(rest, "/*!"), strings.HasPrefix(rest, "/*M!"):
			l.at = len(l.text)
			return "/*!"
		case strings.HasPrefix(rest, "/*"):
			l.at += 2
			l.open = "a comment"
			l.skip("*/", false)
		case r == '\'' || r == '"' || r == '`':
			l.at++
			l.open = "a quotation mark"
			l.skip(string(r), l.backslash && r != '`')
			return string(r)
		case unicode.IsLetter(r) || r == '_':
			end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '$' })
			if end < 0 {
				end = len(rest)
			}
			l.at += end
			return rest[:end]
		default:
			if tag := dollar(rest); tag != "" && !l.backslash {
				l.at += len(tag)
				l.open = "a text"
				l.skip(tag, false)
				return "$"
			}
			l.at += size
			return string(r)
		}
	}
	return ""
}

// skip moves past the next end.
func (l *lexer) skip(end string, escapes bool) {
	for l.at < len(l.text) {
		rest := l.text[l.at:]
		if escapes && rest[0] == '\\' {
			l.at += min(2, len(rest))
			continue
		}
		if strings.HasPrefix(rest, end) {
			l.at += len(end)
			l.open = ""
			return
		}
		l.at++
	}
}

// dollar returns the mark that begins a text quoted with dollars.
func dollar(s string) string {
	if !strings.HasPrefix(s, "$") {
		return ""
	}
	end := strings.IndexByte(s[1:], '$')
	if end < 0 || strings.ContainsFunc(s[1:1+end], func(r rune) bool { return !unicode.IsLetter(r) && r != '_' && !unicode.IsDigit(r) }) {
		return ""
	}
	return s[:end+2]
}

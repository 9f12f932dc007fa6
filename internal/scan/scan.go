// Package scan finds secrets in plain text in files: in manifests, in variables and
// modules of Terraform and OpenTofu, and in states. Each finding says where, what kind of
// place it is and what to do instead. No finding holds the secret.
//
// It knows formats of tokens, and names such as "password" beside a literal value.
// References, placeholders and templates are no findings. It reads no file itself: Tree
// takes a file system, and File the content of one file. It refuses to guess: a file that
// it cannot parse is scanned line by line, and one that it cannot read is named.
//
// Start reading at File, then at scanner.check.
package scan

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Kind is the kind of place in which a secret stands. It decides what to do instead.
type Kind string

// The kinds.
const (
	Environment Kind = "environment"      // a variable of the environment of a container or of a run
	Secret      Kind = "secret"           // data of a Secret
	ConfigMap   Kind = "config-map"       // data of a ConfigMap
	Variable    Kind = "stack-variable"   // a variable of a stack, in its object
	Manifest    Kind = "manifest"         // any other field of a manifest
	VarFile     Kind = "tfvars"           // a file of variables
	Provider    Kind = "provider"         // the configuration of a provider or of a backend
	Default     Kind = "variable-default" // the default of a variable of a module
	Resource    Kind = "resource"         // an attribute of a resource
	Module      Kind = "module"           // any other expression of a module
	State       Kind = "state"            // a value in a state
	Text        Kind = "text"             // a line of any other file, or of a text in one
)

// Finding is one secret in plain text.
type Finding struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1 on
	Kind Kind   `json:"kind"`
	Rule string `json:"rule"` // a format of tokens, or RuleName, RuleSecret, RuleSensitive, …
	At   string `json:"at"`   // the field, attribute or variable
	Mask string `json:"mask"` // what of it is no secret, and •••
	Note string `json:"note,omitempty"`
	Why  string `json:"why,omitempty"` // of one that a comment allows: the reason

	begin int // the line on which the value begins, if it has several
}

// Rules that are no formats of tokens.
const (
	RuleName       = "name"              // a literal beside a name such as "password"
	RuleSecret     = "secret-data"       // a literal in a Secret
	RuleSensitive  = "sensitive"         // a value that the module or the provider marks as sensitive
	RuleConnection = "connection-string" // a password in an address or a connection string
)

// Mask stands for what a finding does not show.
const Mask = "•••"

// String says in a sentence without an end what was found, without the place.
func (f Finding) String() string {
	what := ""
	switch f.Rule {
	case RuleName, RuleSecret:
		what = "a literal value"
	case RuleSensitive:
		what = "a value that is marked as sensitive"
	case RuleConnection:
		what = "a password in a connection string"
	default:
		what = titles()[f.Rule]
	}
	return fmt.Sprintf("%s is %s (%s)", f.At, what, f.Mask)
}

// Unread is a file that was not scanned, or not as what it is.
type Unread struct {
	File    string `json:"file"`
	Why     string `json:"why"`
	Scanned bool   `json:"scanned,omitempty"` // line by line
}

// Report is what a scan found.
type Report struct {
	Findings []Finding `json:"findings"`
	Allowed  []Finding `json:"allowed,omitempty"` // by a comment, with its reason
	Known    int       `json:"known"`             // findings that the baseline has
	Stale    []Known   `json:"stale,omitempty"`   // entries of the baseline that are no findings any more
	Unread   []Unread  `json:"unread,omitempty"`
	Files    int       `json:"files"` // that were scanned
}

// Clean reports whether nothing was found, and everything was scanned.
func (r Report) Clean() bool {
	return len(r.Findings) == 0 && !slices.ContainsFunc(r.Unread, func(u Unread) bool { return !u.Scanned })
}

// Kinds are those of the findings, in order.
func (r Report) Kinds() []Kind {
	var all []Kind
	for _, f := range r.Findings {
		all = append(all, f.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Add takes over what was found in one file or object.
func (r *Report) Add(found []Finding, unread *Unread) {
	for _, f := range found {
		if f.Why != "" {
			r.Allowed = append(r.Allowed, f)
		} else {
			r.Findings = append(r.Findings, f)
		}
	}
	if unread != nil {
		r.Unread = append(r.Unread, *unread)
	}
}

// File scans the content of one file. The name says what it is, and the content where the
// name does not. The second result is not nil if the file could not be scanned as what it is.
func File(name string, content []byte) ([]Finding, *Unread) {
	f := formOf(path.Base(name), content)
	if f == formNone {
		return nil, nil
	}
	if bytes.IndexByte(content, 0) >= 0 {
		return nil, &Unread{File: name, Why: "it is no text"}
	}
	s := &scanner{file: name, lines: strings.Split(string(content), "\n")}
	err := s.scan(f, content)
	s.raw()
	var unread *Unread
	if err != nil {
		unread = &Unread{File: name, Why: err.Error(), Scanned: true}
	}
	return s.result(), unread
}

// Object scans an object of a cluster, in JSON. Its findings have no lines.
func Object(name string, content []byte) ([]Finding, *Unread) {
	s := &scanner{file: name, lines: strings.Split(string(content), "\n")}
	if err := s.scan(formJSON, content); err != nil {
		return nil, &Unread{File: name, Why: err.Error()}
	}
	s.raw()
	found := s.result()
	for i := range found {
		found[i].Line = 0
	}
	return found, nil
}

// scan scans the content as one form. If it cannot be parsed, it is scanned line by line.
func (s *scanner) scan(f form, content []byte) error {
	var err error
	switch f {
	case formYAML:
		err = s.yaml(content)
	case formJSON, formState:
		err = s.json(content)
	case formHCL, formVars:
		err = s.hcl(content, f == formVars)
	case formModuleJSON, formVarsJSON:
		err = s.moduleJSON(content, f == formVarsJSON)
	case formMarkdown:
		return s.markdown()
	default:
		s.text(place{kind: Text}, string(content), 1)
	}
	if err != nil {
		s.found = nil
		s.text(place{kind: Text}, string(content), 1)
	}
	return err
}

// form is how the content of a file is written.
type form int

const (
	formNone form = iota // it is not scanned
	formYAML
	formJSON
	formState
	formHCL
	formVars
	formModuleJSON
	formVarsJSON
	formMarkdown
	formText
)

// formOf says how a file is written, by its name.
func formOf(name string, content []byte) form {
	lower := strings.ToLower(name)
	for _, by := range []struct {
		suffix string
		form   form
	}{
		{".tfvars.json", formVarsJSON}, {".tf.json", formModuleJSON}, {".tofu.json", formModuleJSON},
		{".tfvars", formVars}, {".tf", formHCL}, {".tofu", formHCL}, {".hcl", formHCL}, {".terraformrc", formHCL}, {".tofurc", formHCL},
		{".tfstate", formState}, {".tfstate.backup", formState},
		{".yaml", formYAML}, {".yml", formYAML}, {".json", formJSON},
		{".md", formMarkdown}, {".markdown", formMarkdown},
	} {
		if strings.HasSuffix(lower, by.suffix) {
			return by.form
		}
	}
	if slices.Contains(texts, path.Ext(lower)) || strings.HasPrefix(lower, ".env") || strings.HasPrefix(lower, "id_") && path.Ext(lower) == "" || strings.HasPrefix(lower, "dockerfile") {
		return formText
	}
	if name != Stdin {
		return formNone
	}
	return guessed(content)
}

// Stdin is the name of content without a name: what it holds says what it is.
const Stdin = "-"

// texts are the ends of names of files that are scanned line by line.
var texts = []string{
	".env", ".sh", ".properties", ".conf", ".ini", ".cfg", ".toml", ".xml", ".tpl", ".tftpl", ".tmpl", ".gotmpl", ".j2", ".pem", ".key", ".p8", ".txt",
}

// guessed says how content without a name is written.
func guessed(content []byte) form {
	if begin := bytes.TrimSpace(content); len(begin) > 0 && (begin[0] == '{' || begin[0] == '[') {
		return formJSON
	}
	if s := (&scanner{}); s.yaml(content) == nil && s.maps > 0 {
		return formYAML
	}
	if s := (&scanner{}); s.hcl(content, false) == nil {
		return formHCL
	}
	return formText
}

// place is where a value stands.
type place struct {
	kind   Kind
	path   string // of the field
	all    string // the rule by which every literal is a finding; empty if its name decides
	strict bool   // a name that may be that of a reference elsewhere holds a secret here
	fixed  bool   // the names of fields do not change the kind
}

// below is the place of a part.
func (p place) below(name string) place {
	if p.path != "" && !strings.HasPrefix(name, "[") && !strings.HasSuffix(p.path, " ") {
		name = "." + name
	}
	p.path += name
	return p
}

// scanner scans one file.
type scanner struct {
	file  string
	lines []string
	found []Finding
	maps  int // objects that were read
}

// add adds a finding.
func (s *scanner) add(p place, rule, mask string, line, begin int) {
	at := p.path
	if at == "" {
		at = "the line"
	}
	s.found = append(s.found, Finding{File: s.file, Line: line, Kind: p.kind, Rule: rule, At: at, Mask: mask, begin: begin})
}

// position is where a value is in its file.
type position struct {
	line  int
	block bool // its lines are those of the file, from the next one on
}

// check looks for secrets in the value of one name.
func (s *scanner) check(p place, name, value string, at position) {
	if isReference(value) {
		return
	}
	first := at.line
	if at.block {
		first++
	}
	lines := strings.Split(value, "\n")
	lineOf := func(i int) int {
		if at.block {
			return first + i
		}
		return at.line
	}
	before := len(s.found)
	for i, line := range lines {
		for _, m := range tokensIn(line) {
			s.add(p, m.rule, m.mask, lineOf(i), at.line)
		}
	}
	if len(s.found) > before {
		return
	}
	several := len(lines) > 1 && strings.TrimSpace(strings.Join(lines[1:], "")) != ""
	switch {
	case p.all != "" && isLiteral(value) && !isPublic(name, value):
		s.add(p, p.all, Mask, at.line, at.line)
	case several:
		for i, line := range lines {
			s.textLine(p, line, lineOf(i), at.line)
		}
		s.properties(p, value, lineOf)
	default:
		value = strings.TrimSpace(value)
		if holdsSecret(name, value, p.strict) {
			s.add(p, RuleName, Mask, at.line, at.line)
			return
		}
		s.connection(p, value, at.line, at.line)
	}
}

// raw finds tokens in lines in which nothing was found: in comments, in keys, and in what a
// parser passes over.
func (s *scanner) raw() {
	seen := map[int]bool{}
	for _, f := range s.found {
		seen[f.Line] = true
		if f.begin != 0 {
			seen[f.begin] = true
		}
	}
	for i, line := range s.lines {
		if seen[i+1] {
			continue
		}
		for _, m := range tokensIn(line) {
			s.add(place{kind: Text}, m.rule, m.mask, i+1, i+1)
		}
	}
}

// result is what was found, in order and each once, with the reasons of comments that allow it.
func (s *scanner) result() []Finding {
	slices.SortStableFunc(s.found, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.At, b.At)) })
	out := slices.CompactFunc(s.found, func(a, b Finding) bool { return a == b })
	for i := range out {
		out[i].Why, out[i].Note = s.allowed(out[i])
	}
	return out
}

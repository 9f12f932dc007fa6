package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// AllowComment allows a finding in its line, or in the line below a comment, if a reason
// follows it.
const AllowComment = "terrier:allow-secret"

// allowed is the reason of the comment that allows a finding. A comment without a reason
// allows nothing; the note says so.
func (s *scanner) allowed(f Finding) (why, note string) {
	for _, n := range []int{f.Line, f.begin} {
		for _, line := range []string{s.line(n), s.commentAbove(n)} {
			_, after, ok := strings.Cut(line, AllowComment)
			if !ok {
				continue
			}
			after = strings.TrimSpace(strings.TrimLeft(strings.TrimSuffix(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(after), "-->")), "*/"), ":"))
			if strings.ContainsFunc(after, isLetter) {
				return after, ""
			}
			note = "the comment " + AllowComment + " gives no reason: write one after it"
		}
	}
	return "", note
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f }

// line is a line of the file, from 1 on.
func (s *scanner) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// commentAbove is the line above, if it is nothing but a comment.
func (s *scanner) commentAbove(n int) string {
	text := strings.TrimSpace(s.line(n - 1))
	for _, begin := range []string{"#", "//", "/*", "<!--", ";", "{{/*", "{{- /*"} {
		if strings.HasPrefix(text, begin) {
			return text
		}
	}
	return ""
}

// Known is a finding that a baseline has. It holds no line, so that it stays the same where
// lines move, and nothing of the value: a new secret in the same place is known as well.
type Known struct {
	File string `json:"file"`
	Kind Kind   `json:"kind"`
	Rule string `json:"rule"`
	At   string `json:"at"`
}

func (f Finding) known() Known { return Known{f.File, f.Kind, f.Rule, f.At} }

// Baseline are findings that are known, and not reported again.
type Baseline struct {
	Version  int     `json:"version"` // of the format: 1
	Findings []Known `json:"findings"`
}

const baselineVersion = 1

// BaselineOf is a baseline of all findings of a report.
func BaselineOf(r Report) Baseline {
	b := Baseline{Version: baselineVersion, Findings: []Known{}}
	for _, f := range r.Findings {
		b.Findings = append(b.Findings, f.known())
	}
	return b
}

// ParseBaseline reads a baseline.
func ParseBaseline(text []byte) (Baseline, error) {
	var b Baseline
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("reading the baseline: %w", err)
	}
	if b.Version != baselineVersion {
		return b, errors.New("reading the baseline: version is not 1: write it again with --write-baseline")
	}
	return b, nil
}

// Without takes the findings that a baseline has out of a report, each entry once.
func (r Report) Without(b Baseline) Report {
	left := slices.Clone(b.Findings)
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		i := slices.Index(left, f.known())
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
		r.Known++
		return true
	})
	r.Stale = left
	return r
}

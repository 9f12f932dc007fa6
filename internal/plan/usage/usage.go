// Package usage says what a configuration uses: the modules that it calls, with nested
// calls, and its providers, both as the configuration declares them and as init resolved
// them. It is an input of policies, and part of what is known of a plan and of a stack.
//
// It reads no file. What a run says is checked by Parse, and credentials are taken out of
// addresses by ParseSource. Start reading at Usage.
package usage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Bounds of a list. What is beyond them is left out, and a problem of the list says so.
const (
	MaxBytes = 8 << 20 // of a list as JSON

	maxModules      = 10_000
	maxProviders    = 1_000
	maxRequirements = 10_000 // of all providers
	maxHashes       = 500    // of one provider
	maxProblems     = 20
	maxText         = 2 << 10 // bytes of one text
	maxTexts        = 4 << 20 // bytes of all texts together
)

// Usage is what one configuration uses.
type Usage struct {
	Modules   []Module   `json:"modules,omitempty"`   // by path
	Providers []Provider `json:"providers,omitempty"` // by source
	Problems  []string   `json:"problems,omitempty"`  // why the list is not complete; none if it is
}

// Module is one call of a module.
type Module struct {
	Path string `json:"path"`           // module.network.module.subnets
	File string `json:"file,omitempty"` // with the call, in the directory of the module that calls
	Line int    `json:"line,omitempty"` // in it; 0 if unknown

	Declared   string `json:"declared,omitempty"`   // the source as the call has it; an expression as it is written
	Constraint string `json:"constraint,omitempty"` // the version as the call has it

	Source string `json:"source,omitempty"` // as init resolved it; empty if the module is not installed
	Location
	Version string `json:"version,omitempty"` // of a registry; or the ref of a git repository, the tag of an OCI repository
	Commit  string `json:"commit,omitempty"`  // of a git repository, or the digest of an OCI repository

	Since time.Time `json:"since,omitzero"` // when the stack began to use this version here; of a stack alone
}

// Parent is the path of the module that calls; empty for the root module.
func (m Module) Parent() string {
	if at := strings.LastIndex(m.Path, ".module."); at >= 0 {
		return m.Path[:at]
	}
	return ""
}

// Provider is one provider of a configuration and of its modules.
type Provider struct {
	Source     string   `json:"source"`               // registry.opentofu.org/hashicorp/aws
	Version    string   `json:"version,omitempty"`    // that is locked; empty of one that is built into the engine
	Constraint string   `json:"constraint,omitempty"` // of all modules together, as the lock file has it
	Hashes     []string `json:"hashes,omitempty"`     // of the lock file

	Required []Requirement `json:"required,omitempty"` // by module; none if no module has an entry in required_providers

	Since time.Time `json:"since,omitzero"` // when the stack began to use this version; of a stack alone
}

// Requirement is an entry of required_providers.
type Requirement struct {
	Module     string `json:"module,omitempty"` // its path; empty for the root module
	Name       string `json:"name"`             // of the provider in that module
	Declared   string `json:"declared,omitempty"`
	Constraint string `json:"constraint,omitempty"`
}

// Record is what a stack uses, since when, and which run found it.
type Record struct {
	At       time.Time `json:"at"`
	Run      string    `json:"run,omitempty"`
	Revision string    `json:"revision,omitempty"` // of the source
	Usage
}

// Digest identifies a list, whatever it says about times.
func (u Usage) Digest() string {
	return stack.Digest(u.dated(func(time.Time) time.Time { return time.Time{} }))
}

// Since gives each entry the time since when it is used: that in before if the entry is the
// same there, or else now.
func (u Usage) Since(before Usage, now time.Time) Usage {
	modules, providers := map[Module]time.Time{}, map[[2]string]time.Time{}
	for _, m := range before.Modules {
		modules[m.identity()] = m.Since
	}
	for _, p := range before.Providers {
		providers[[2]string{p.Source, p.Version}] = p.Since
	}
	out := u.dated(func(time.Time) time.Time { return now })
	for i, m := range out.Modules {
		if at := modules[m.identity()]; !at.IsZero() {
			out.Modules[i].Since = at
		}
	}
	for i, p := range out.Providers {
		if at := providers[[2]string{p.Source, p.Version}]; !at.IsZero() {
			out.Providers[i].Since = at
		}
	}
	return out
}

// identity is what makes two calls the same use of a module.
func (m Module) identity() Module {
	return Module{Path: m.Path, Source: m.Source, Location: m.Location, Version: m.Version, Commit: m.Commit}
}

// dated is a copy with other times.
func (u Usage) dated(at func(time.Time) time.Time) Usage {
	u.Modules, u.Providers = slices.Clone(u.Modules), slices.Clone(u.Providers)
	for i := range u.Modules {
		u.Modules[i].Since = at(u.Modules[i].Since)
	}
	for i := range u.Providers {
		u.Providers[i].Since = at(u.Providers[i].Since)
	}
	return u
}

// Parse reads a list that a run has left. The run may be elsewhere and say anything, so
// everything is bounded and tidied again.
func Parse(data []byte) (Usage, error) {
	if len(data) > MaxBytes {
		return Usage{}, fault.New(fault.Invalid, "UsesInvalid", fmt.Errorf("the list of used modules has %d bytes, and at most %d are allowed", len(data), MaxBytes))
	}
	var u Usage
	if err := json.Unmarshal(data, &u); err != nil {
		return Usage{}, fault.New(fault.Invalid, "UsesInvalid", fmt.Errorf("reading the list of used modules: %w", err))
	}
	return u.Tidy(), nil
}

// Tidy is a list in order and within the bounds. Its times are those of a stack alone.
func (u Usage) Tidy() Usage {
	b := &bounds{left: maxTexts}
	modules, providers, problems := len(u.Modules), len(u.Providers), u.Problems
	out := u.dated(func(time.Time) time.Time { return time.Time{} })
	slices.SortFunc(out.Modules, func(a, b Module) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Source, b.Source))
	})
	slices.SortFunc(out.Providers, func(a, b Provider) int { return strings.Compare(a.Source, b.Source) })
	// Providers come first: they are few, so that thousands of calls leave none of them out.
	out.Providers = out.Providers[:b.fitting(min(providers, maxProviders), func(i int) { b.provider(&out.Providers[i]) })]
	out.Modules = out.Modules[:b.fitting(min(modules, maxModules), func(i int) { b.module(&out.Modules[i]) })]
	out.Problems = nil
	for what, more := range map[string]int{"calls of modules": modules - len(out.Modules), "providers": providers - len(out.Providers)} {
		if more > 0 {
			out.Problems = append(out.Problems, fmt.Sprintf("The list is full: %d more %s are left out.", more, what))
		}
	}
	for _, p := range problems {
		if p = tidied(p); len(out.Problems) < maxProblems && !slices.Contains(out.Problems, p) {
			out.Problems = append(out.Problems, p)
		}
	}
	slices.Sort(out.Problems)
	if len(out.Modules) == 0 {
		out.Modules = nil
	}
	if len(out.Providers) == 0 {
		out.Providers = nil
	}
	return out
}

// bounds count what a list holds.
type bounds struct {
	left         int // bytes of texts
	requirements int
}

// fitting tidies the first n entries and returns how many of them fit.
func (b *bounds) fitting(n int, tidy func(int)) int {
	for i := range n {
		tidy(i)
		if b.left < 0 {
			return i
		}
	}
	return n
}

func (b *bounds) texts(all ...*string) {
	for _, t := range all {
		*t = tidied(*t)
		b.left -= len(*t)
	}
}

func (b *bounds) module(m *Module) {
	m.Line = max(m.Line, 0)
	// A run elsewhere need not have taken the credentials out.
	m.Declared, m.Source, m.Address = Masked(m.Declared), Masked(m.Source), Masked(m.Address)
	b.texts(&m.Path, &m.File, &m.Declared, &m.Constraint, &m.Source, (*string)(&m.Kind), &m.Address, &m.Directory, &m.Version, &m.Commit)
}

func (b *bounds) provider(p *Provider) {
	p.Hashes = slices.Clone(p.Hashes[:min(len(p.Hashes), maxHashes)])
	slices.SortFunc(p.Required, func(a, b Requirement) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), strings.Compare(a.Name, b.Name))
	})
	p.Required = slices.Clone(p.Required[:min(len(p.Required), max(maxRequirements-b.requirements, 0))])
	b.requirements += len(p.Required)
	b.texts(&p.Source, &p.Version, &p.Constraint)
	for i := range p.Hashes {
		b.texts(&p.Hashes[i])
	}
	for i := range p.Required {
		r := &p.Required[i]
		b.texts(&r.Module, &r.Name, &r.Declared, &r.Constraint)
	}
}

// tidied is a text on one line, of bounded length.
func tidied(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

package module

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// CLI is what a stack's own configuration of the engine's command line says.
// It completes the platform's and replaces nothing of it: a program that it
// names is not started, and a provider that the platform's mirror has comes
// from there.
type CLI struct {
	Credentials map[string]string            // tokens by host
	Hosts       map[string]map[string]string // services by host
	Install     []Method                     // where providers come from; nil if it does not say
}

// Method is one place that providers come from.
type Method struct {
	Kind             string // filesystem_mirror, network_mirror or direct
	Place            string // a path or a URL; empty for direct
	Include, Exclude []string
}

const cliField = "spec.cliConfigSecretRef"

// ParseCLI reads the content of a .tfrc file. What it may say is credentials,
// host and provider_installation; everything else is refused by its name, since
// it would start programs, share files between stacks, or replace providers
// unseen.
func ParseCLI(content []byte) (CLI, error) {
	c := CLI{Credentials: map[string]string{}, Hosts: map[string]map[string]string{}}
	if err := checkDepth(cliField, content); err != nil {
		return c, err
	}
	f, diags := hclsyntax.ParseConfig(content, cliField, hcl.InitialPos)
	if diags.HasErrors() {
		return c, diagnosedCLI(diags)
	}
	body := f.Body.(*hclsyntax.Body)
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		if name != "disable_checkpoint" && name != "disable_checkpoint_signature" { // the checkpoint is disabled in any case
			return c, cliFault(body.Attributes[name].SrcRange, "%s cannot be set by a stack", name)
		}
	}
	for _, b := range body.Blocks {
		var err error
		switch b.Type {
		case "credentials":
			err = c.credentials(b)
		case "host":
			err = c.host(b)
		case "provider_installation":
			err = c.install(b)
		default:
			err = cliFault(b.TypeRange, "a block of type %s cannot be used by a stack", b.Type)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *CLI) credentials(b *hclsyntax.Block) error {
	host, err := hostOf(b)
	if err != nil {
		return err
	}
	if err := only(b, []string{"token"}, nil); err != nil {
		return err
	}
	token, err := textOf(b.Body, "token")
	if err != nil || token == "" {
		return errors.Join(err, cliFault(b.TypeRange, "credentials of %s have no token", host))
	}
	c.Credentials[host] = token
	return nil
}

func (c *CLI) host(b *hclsyntax.Block) error {
	host, err := hostOf(b)
	if err != nil {
		return err
	}
	if err := only(b, []string{"services"}, nil); err != nil {
		return err
	}
	services := map[string]string{}
	if a := b.Body.Attributes["services"]; a != nil {
		v, diags := a.Expr.Value(nil)
		if diags.HasErrors() || !v.CanIterateElements() || v.Type().IsListType() || v.Type().IsTupleType() {
			return cliFault(a.SrcRange, "services of %s must be addresses by name", host)
		}
		for k, e := range v.AsValueMap() {
			text, ok := plainText(e)
			if !ok || !isPlain(k) {
				return cliFault(a.SrcRange, "services of %s: %.80q is no plain text", host, k)
			}
			services[k] = text
		}
	}
	c.Hosts[host] = services
	return nil
}

// places are the methods that say where, by the name of what says it.
var places = map[string]string{"filesystem_mirror": "path", "network_mirror": "url", "direct": ""}

func (c *CLI) install(b *hclsyntax.Block) error {
	if len(b.Labels) > 0 || len(b.Body.Attributes) > 0 {
		return cliFault(b.TypeRange, "provider_installation has no name and no arguments")
	}
	for _, m := range b.Body.Blocks {
		where, known := places[m.Type]
		if !known {
			return cliFault(m.TypeRange, "provider_installation: %s cannot be used by a stack", m.Type)
		}
		if err := only(m, []string{"include", "exclude", where}, nil); err != nil {
			return err
		}
		method := Method{Kind: m.Type}
		var err error
		if where != "" {
			if method.Place, err = textOf(m.Body, where); err != nil || method.Place == "" {
				return errors.Join(err, cliFault(m.TypeRange, "%s needs a %s", m.Type, where))
			}
		}
		if method.Include, err = textsOf(m.Body, "include"); err != nil {
			return err
		}
		if method.Exclude, err = textsOf(m.Body, "exclude"); err != nil {
			return err
		}
		c.Install = append(c.Install, method)
	}
	return nil
}

// Lasting is what of c a plan depends on: everything but the tokens.
func (c CLI) Lasting() any {
	return []any{slices.Sorted(maps.Keys(c.Credentials)), c.Hosts, c.Install}
}

// Tokens lists the tokens in c.
func (c CLI) Tokens() []string { return slices.Sorted(maps.Values(c.Credentials)) }

// File is the platform's configuration completed by c.
func (c CLI) File(mirror workdir.Mirror) workdir.File {
	f := workdir.CLIConfig(mirror)
	var b strings.Builder
	if c.Install == nil || mirror.Only {
		b.Write(f.Content)
	} else {
		b.Write(workdir.CLIConfig(workdir.Mirror{}).Content)
		mirror.Providers = slices.Compact(slices.Sorted(slices.Values(mirror.Providers)))
		c.writeInstall(&b, mirror)
	}
	for _, host := range slices.Sorted(maps.Keys(c.Credentials)) {
		fmt.Fprintf(&b, "\ncredentials %q {\n  token = %q\n}\n", host, c.Credentials[host])
	}
	for _, host := range slices.Sorted(maps.Keys(c.Hosts)) {
		fmt.Fprintf(&b, "\nhost %q {\n  services = {\n", host)
		for _, name := range slices.Sorted(maps.Keys(c.Hosts[host])) {
			fmt.Fprintf(&b, "    %q = %q\n", name, c.Hosts[host][name])
		}
		b.WriteString("  }\n}\n")
	}
	f.Content = []byte(b.String())
	return f
}

// Check reports whether c may say what it says on a platform with that mirror.
func (c CLI) Check(mirror workdir.Mirror) error {
	if !mirror.Only || c.Install == nil {
		return nil
	}
	return fault.New(fault.Denied, "CLIConfigDenied", fmt.Errorf(
		"%s: remove provider_installation: all providers come from the mirror of this platform, since the operator set --provider-registries=false", cliField))
}

// writeInstall puts the platform's mirror first, and excludes its providers from all
// other places.
func (c CLI) writeInstall(b *strings.Builder, mirror workdir.Mirror) {
	b.WriteString("\nprovider_installation {\n")
	if len(mirror.Providers) > 0 {
		Method{Kind: "filesystem_mirror", Place: mirror.Dir, Include: mirror.Providers}.write(b)
	}
	for _, m := range c.Install {
		m.Exclude = slices.Concat(m.Exclude, mirror.Providers)
		m.write(b)
	}
	b.WriteString("}\n")
}

func (m Method) write(b *strings.Builder) {
	fmt.Fprintf(b, "  %s {\n", m.Kind)
	if where := places[m.Kind]; where != "" {
		fmt.Fprintf(b, "    %s = %q\n", where, m.Place)
	}
	writeList(b, "include", m.Include)
	writeList(b, "exclude", m.Exclude)
	b.WriteString("  }\n")
}

func writeList(b *strings.Builder, name string, list []string) {
	if len(list) == 0 {
		return
	}
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	fmt.Fprintf(b, "    %s = [%s]\n", name, strings.Join(quoted, ", "))
}

// only refuses what a block may not hold.
func only(b *hclsyntax.Block, attributes, blocks []string) error {
	for _, name := range slices.Sorted(maps.Keys(b.Body.Attributes)) {
		if !slices.Contains(attributes, name) {
			return cliFault(b.Body.Attributes[name].SrcRange, "%s: %s is not known", b.Type, name)
		}
	}
	for _, inner := range b.Body.Blocks {
		if !slices.Contains(blocks, inner.Type) {
			return cliFault(inner.TypeRange, "%s: a block of type %s is not known", b.Type, inner.Type)
		}
	}
	return nil
}

func hostOf(b *hclsyntax.Block) (string, error) {
	if len(b.Labels) != 1 || !workdir.IsHost(b.Labels[0]) {
		return "", cliFault(b.TypeRange, "%s needs one host name", b.Type)
	}
	return b.Labels[0], nil
}

func textOf(body *hclsyntax.Body, name string) (string, error) {
	a := body.Attributes[name]
	if a == nil {
		return "", nil
	}
	v, diags := a.Expr.Value(nil)
	text, ok := plainText(v)
	if diags.HasErrors() || !ok {
		return "", cliFault(a.SrcRange, "%s must be a plain text", name)
	}
	return text, nil
}

func textsOf(body *hclsyntax.Body, name string) ([]string, error) {
	a := body.Attributes[name]
	if a == nil {
		return nil, nil
	}
	v, diags := a.Expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.Type().IsTupleType() {
		return nil, cliFault(a.SrcRange, "%s must be a list of plain texts", name)
	}
	var list []string
	for _, e := range v.AsValueSlice() {
		text, ok := plainText(e)
		if !ok {
			return nil, cliFault(a.SrcRange, "%s must be a list of plain texts", name)
		}
		list = append(list, text)
	}
	return list, nil
}

// plainText is a text that means the same to every reader of such files: the
// engine's own is of an older version of the language.
func plainText(v cty.Value) (string, bool) {
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), isPlain(v.AsString())
}

func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) && !strings.Contains(s, "${")
}

func cliFault(at hcl.Range, format string, args ...any) error {
	return fault.New(fault.Invalid, "CLIConfigInvalid", fmt.Errorf("%s: line %d: %s", cliField, at.Start.Line, fmt.Sprintf(format, args...)))
}

// diagnosedCLI names the place of a syntax error, and shows nothing of the text,
// which may be a token.
func diagnosedCLI(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			return cliFault(*d.Subject, "%s", d.Summary)
		}
	}
	return cliFault(hcl.Range{}, "it cannot be read")
}

package tenants

import (
	"cmp"
	"context"
	"slices"
	"strings"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// row returns the row of p. One that was read before is not read again as long
// as the Tenant says that it is still that one.
func (c *Tenants) row(ctx context.Context, p *pass) (tenant.Row, error) {
	said := p.obj.Annotations[tenantsv1.AnnotationRow]
	if row, ok := p.memory.row(said); ok {
		p.row = said
		return row, nil
	}
	row, err := readRow(ctx, c.Live, p.obj)
	if err != nil || said == "" {
		return row, err
	}
	// The Secret and what the Tenant says of it are written one after the other:
	// what the objects are made of is what was read.
	p.row = digestOf(c.Key, row)
	p.memory.keepRow(p.row, row)
	return row, nil
}

// shortSecret is the length below which a value of a row is no secret, or could
// not be told from anything else in a message.
const shortSecret = 8

// secretsOf are the values of a row that may be secrets: those that are in no
// name, which everybody sees.
func secretsOf(row tenant.Row, objects []tenant.Object) []string {
	var all []string
	for _, v := range row.Extra {
		if len(v) >= shortSecret && !slices.ContainsFunc(objects, func(o tenant.Object) bool { return strings.Contains(tenant.RefOf(o.Rendered).String(), v) }) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return all
}

// conceal takes values of the row out of a text that others wrote.
func (p *pass) conceal(text string) string {
	for _, s := range p.secrets {
		text = strings.ReplaceAll(text, s, "•••")
	}
	return text
}

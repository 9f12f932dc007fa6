package tenants

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// row returns the row of p. A row is read again only if the Tenant's annotation has
// changed.
func (c *observer) row(ctx context.Context, p *pass) (tenant.Row, error) {
	said := p.obj.Annotations[tenantsv1.AnnotationRow]
	if row, ok := p.memory.row(said); ok {
		p.row = said
		return row, nil
	}
	row, err := readRow(ctx, c.Live, p.obj)
	if err != nil || said == "" {
		return row, err
	}
	// Secret and annotation are written one after the other: the objects are rendered
	// from the row that was read.
	p.row = digestOf(c.Key, row)
	p.memory.keepRow(p.row, row)
	return row, nil
}

// rowTimeout is how long a row may be missing before that is a failure: the registry
// writes it after its Tenant, and again when it is lost. A new Secret wakes the
// Tenant.
const rowTimeout = 10 * time.Second

// awaitRow is how much longer to wait for a missing row; zero or less after the
// timeout.
func (m *memory) awaitRow(now time.Time) time.Duration {
	if m.missed.IsZero() {
		m.missed = now
	}
	return m.missed.Add(rowTimeout).Sub(now)
}

// shortSecret is the length below which a value of a row is not redacted: it is no
// secret, or too common a text.
const shortSecret = 8

// redact redacts the values of a row that may be secrets from messages: all that are
// in no name, since names are public.
func (p *pass) redact(row tenant.Row) {
	var names []string
	for _, o := range p.o.Objects {
		names = append(names, tenant.RefOf(o.Rendered).String())
	}
	for _, i := range p.o.Inventory {
		names = append(names, i.Ref.String())
	}
	p.secrets = nil
	for _, v := range row.Extra {
		if len(v) >= shortSecret && !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, v) }) {
			p.secrets = append(p.secrets, v)
		}
	}
	slices.SortFunc(p.secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	p.redactor = sync.OnceValue(func() *plan.Redactor { return plan.NewRedactor(p.secrets) })
}

// redacted removes values of the row from a text of another program: as they are, in
// quotes, in base64, line by line, and the beginning of one that was cut.
func (p *pass) redacted(text string) string {
	if len(p.secrets) == 0 {
		return text
	}
	text = p.redactor().String(text)
	for at := strings.Index(text, ellipsis); at >= 0; {
		from := at - p.cut(text[:at])
		if from < at {
			text = text[:from] + plan.Mask + text[at:]
			at = from + len(plan.Mask)
		}
		next := strings.Index(text[at+len(ellipsis):], ellipsis)
		if next < 0 {
			break
		}
		at += len(ellipsis) + next
	}
	return text
}

// ellipsis marks where a message was cut.
const ellipsis = "…"

// cut is how many bytes at the end of a text begin a secret, in quotes or not.
func (p *pass) cut(text string) int {
	const fewest = 4 // fewer match by chance
	longest := 0
	for _, s := range p.secrets {
		quoted := strconv.Quote(s[:min(len(s), messageBytes)])
		for _, form := range []string{s, quoted[1 : len(quoted)-1]} {
			for n := min(len(form), len(text)); n >= fewest && n > longest; n-- {
				if strings.HasSuffix(text, form[:n]) {
					longest = n
				}
			}
		}
	}
	return longest
}

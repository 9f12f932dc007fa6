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

// row returns the row of p. One that was read before is not read again as long
// as the Tenant says that it is still that one.
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
	// The Secret and what the Tenant says of it are written one after the other:
	// what the objects are made of is what was read.
	p.row = digestOf(c.Key, row)
	p.memory.keepRow(p.row, row)
	return row, nil
}

// rowComes is how long a row may be missing before that is a failure: it is
// written after its Tenant, and again by the registry when it is lost. Its
// arrival wakes the Tenant.
const rowComes = 10 * time.Second

// awaitRow is how long a row that is not there is still waited for; not at all if
// it was for long enough.
func (m *memory) awaitRow(now time.Time) time.Duration {
	if m.missed.IsZero() {
		m.missed = now
	}
	return m.missed.Add(rowComes).Sub(now)
}

// shortSecret is the length below which a value of a row is no secret, or could
// not be told from anything else in a message.
const shortSecret = 8

// hide has no message show the values of a row that may be secrets: those that
// are in no name, which everybody sees.
func (p *pass) hide(row tenant.Row) {
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

// conceal takes values of the row out of a text that others wrote: as they are,
// in quotes, in base64, line by line, and the beginning of one that was cut.
func (p *pass) conceal(text string) string {
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

// ellipsis is what stands where a message was cut.
const ellipsis = "…"

// cut is how many bytes at the end of a text are the beginning of a secret, in
// quotes or not.
func (p *pass) cut(text string) int {
	const fewest = 4 // less of one stands there by chance
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

package tenant

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWhatIsProtectedIsNotTied(t *testing.T) {
	mine := Existing{Name: "a0-web", UID: "a0", Template: "web", Generation: 1, Tied: true}
	with := func(change func(*Existing)) Existing {
		e := mine
		change(&e)
		return e
	}
	loose := with(func(e *Existing) { e.Tied, e.Unowned = false, true })
	web := TemplateKnown{Name: "web", Generation: 1, Valid: true}
	protecting := web
	protecting.Protected = true
	for name, tt := range map[string]struct {
		tenant   Existing
		template []TemplateKnown
		want     Tie
	}{
		"tied, not protected":                     {mine, []TemplateKnown{web}, ""},
		"tied, protected":                         {with(func(e *Existing) { e.Protected = true }), []TemplateKnown{web}, Untied},
		"tied, protected by its template":         {mine, []TemplateKnown{protecting}, Untied},
		"tied, protected, without a template":     {with(func(e *Existing) { e.Protected = true }), nil, Untied},
		"tied, protected by its template, leaves": {with(func(e *Existing) { e.Leaving = &Leaving{Since: time.Unix(1, 0)} }), []TemplateKnown{protecting}, Untied},
		"tied, protected, in deletion":            {with(func(e *Existing) { e.Protected, e.Deleting = true, true }), []TemplateKnown{web}, ""},
		"not tied, not protected":                 {loose, []TemplateKnown{web}, Tied},
		"not tied, protected by its template":     {loose, []TemplateKnown{protecting}, ""},
		"not tied, and its template is not known": {loose, nil, ""},
		"not tied, and another object owns it":    {with(func(e *Existing) { e.Tied = false }), []TemplateKnown{web}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := Sync(Known{Now: time.Unix(100, 0), Templates: tt.template, Tenants: []Existing{tt.tenant}, Digest: digest}) // no row could be read
			var got Tie
			if len(s.Change) > 0 {
				got = s.Change[0].Tie
			}
			if got != tt.want {
				t.Errorf("Sync() changes the tie to %q, want %q", got, tt.want)
			}
		})
	}
}

// After each step exactly the tenants are tied that nothing protects, new ones too.
func TestTiesFollowProtection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Known{Now: time.Unix(0, 0), Registry: "ns/r", Digest: digest, Guard: Guard{MaxPercent: 100, MaxCount: 100},
			Templates: []TemplateKnown{{Name: "web", Generation: 1, Valid: true}, {Name: "db", Generation: 1, Valid: true}}}
		for _, uid := range []string{"u0", "u1", "u2"} {
			k.Read.Rows = append(k.Read.Rows, Row{UID: uid, Active: true})
		}
		k.Read.OK, k.Read.Total = true, len(k.Read.Rows)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for i := range k.Templates {
				k.Templates[i].Protected = rapid.Bool().Draw(t, "template")
			}
			for i := range k.Tenants {
				k.Tenants[i].Protected = rapid.Bool().Draw(t, "tenant")
			}
			k.Read.OK = len(k.Tenants) == 0 || rapid.Bool().Draw(t, "database")
			s := Sync(k)
			for _, n := range s.Create {
				k.Tenants = append(k.Tenants, Existing{Name: n.Name, UID: n.Row.UID, Template: n.Template, Row: digest(n.Row), Generation: n.Generation, Tied: !n.Untied, Unowned: n.Untied})
			}
			for _, c := range s.Change {
				e := &k.Tenants[slices.IndexFunc(k.Tenants, func(e Existing) bool { return e.Name == c.Name })]
				if c.Tie != "" {
					e.Tied, e.Unowned = c.Tie == Tied, c.Tie == Untied
				}
			}
			for _, e := range k.Tenants {
				template := k.Templates[slices.IndexFunc(k.Templates, func(t TemplateKnown) bool { return t.Name == e.Template })]
				if protected := e.Protected || template.Protected; e.Tied == protected {
					t.Fatalf("%s is protected: %v, tied: %v", e.Name, protected, e.Tied)
				}
			}
			if again := Sync(k); len(again.Change) > 0 {
				t.Fatalf("another step changes %+v", again.Change)
			}
		}
	})
}

package browser

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPictures shows every screen at two widths and in two themes. Nothing may
// stick out of the page at either, nothing may be said on the console, and all
// of it is kept as pictures for people to look at.
func TestPictures(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	play(t, p, c)
	w := open(t, p)
	signIn(t, w, c)
	one := "/stacks/" + c.Namespace + "/"
	run := value[string](w, `fetch("`+strings.Replace(one, "/stacks/", "/api/v1/namespaces/", 1)+`stacks/network/runs").then(r => r.json()).then(r => r.items[0].id)`)
	byHand(w, one+"byhand")
	screens := map[string]string{
		"stacks": "/stacks", "stacks-grouped": "/stacks?group=namespace", "stacks-none": "/stacks?q=nothing-is-called-this",
		"stack": one + "network", "stack-pending": one + "database", "stack-failed": one + "broken",
		"stack-runs": one + "network/runs", "stack-resources": one + "network/resources", "stack-outputs": one + "network/outputs",
		"stack-inputs": one + "database/inputs", "stack-graph": one + "database/graph", "stack-states": one + "network/states",
		"stack-drift": one + "drifting/drift", "stack-events": one + "network/events",
		"run": one + "network/runs/" + run, "log": one + "network/runs/" + run + "/log", "plan": one + "database/plan",
		"approvals": "/approvals", "drift": "/drift", "queue": "/queue", "tenants": "/tenants", "sources": "/sources",
		"audit": "/audit", "notifications": "/notifications", "about": "/about", "api": "/api", "missing": one + "nobody",
		"stack-glass": one + "network/break-glass", "stack-glass-session": one + "byhand/break-glass", "stack-states-push": brought(w, one+"network"),
		"stack-inputs-values": one + "network/inputs", "retained": "/retained", "retained-open": "/retained", "stack-states-open": one + "network/states", "missing-left": one + "leaving",
	}
	w.expect("404") // of the screen that is not there
	for _, theme := range []string{"light", "dark"} {
		for name, size := range map[string][2]int64{"wide": {1280, 900}, "phone": {390, 844}} {
			w.do(chromedp.EmulateViewport(size[0], size[1]), prefer(theme))
			for screen, path := range screens {
				t.Run(fmt.Sprintf("%s-%s-%s", screen, name, theme), func(t *testing.T) {
					w.within(t, func() {
						w.visit(path)
						w.at(strings.Split(path, "?")[0])
						if opened[screen] {
							value[int](w, `[...document.querySelectorAll("main details")].map(d => d.open = true).length`)
						}
						if over := value[int](w, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
							t.Errorf("%s sticks out of a page of %d pixels by %d: %q", path, size[0], over, value[[]string](w, sticking))
						}
						if os.Getenv("TERRIER_PICTURES") != "" || name == "wide" && theme == "light" {
							w.shoot(fmt.Sprintf("%s-%s-%s", screen, name, theme))
						}
					})
				})
			}
		}
	}
}

// opened are the screens that are shown with everything open that can be.
var opened = map[string]bool{"retained-open": true, "stack-states-open": true}

// sticking finds what sticks out of the page, the innermost first.
const sticking = `[...document.querySelectorAll("main *")].reverse().filter(e => e.getBoundingClientRect().right > innerWidth)
	.slice(0, 5).map(e => e.tagName + "." + e.className + ": " + e.textContent.trim().slice(0, 60))`

// prefer is what a reader has set for all pages.
func prefer(theme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
		})
		return err
	})
}

package browser

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// patience bounds every wait for something to show.
const patience = testkit.Patience

// window is one browser window, at first without a session.
type window struct {
	t    *testing.T
	ctx  context.Context
	base string // of the platform

	mu       sync.Mutex
	expected []string // what the console may say
	said     []string // what it said
}

// browser is the one that all tests share.
var browser struct {
	sync.Mutex
	dir  string // for what it leaves lying about, since it is killed at the end
	ctx  context.Context
	stop context.CancelFunc
}

// begin starts the browser with the first window.
func begin(t *testing.T) context.Context {
	t.Helper()
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	var err error
	if browser.dir, err = os.MkdirTemp("", "terrier-chromium-"); err != nil {
		t.Fatal(err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.IgnoreCertErrors, chromedp.Headless, chromedp.DisableGPU, chromedp.Env("TMPDIR=" + browser.dir),
		chromedp.WSURLReadTimeout(patience), // in place of twenty seconds
	}
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	ctx, stop := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(options...))
	if err := chromedp.Do(ctx); err != nil {
		stop()
		t.Fatalf("starting Chromium, which make deps installs: %v", err)
	}
	browser.ctx, browser.stop = ctx, stop
	return ctx
}

// open opens a window for one test.
func open(t *testing.T, p *testkit.Platform) *window {
	t.Helper()
	ctx, stop := chromedp.NewContext(begin(t), chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	w := &window{t: t, ctx: ctx, base: strings.TrimSuffix(p.HTTP, "/")}
	// A window lives as long as the context that it is first used with, so that
	// must not be one with a deadline.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	go w.listen(chromedp.Console(ctx))
	t.Cleanup(func() {
		if t.Failed() {
			w.shoot("failed")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range w.said {
			if !w.expects(s) {
				t.Errorf("the console says: %s", s)
			}
		}
	})
	return w
}

// listen records the messages of the console until the window is closed.
func (w *window) listen(console iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range console {
		if err != nil {
			return
		}
		w.mu.Lock()
		w.said = append(w.said, fmt.Sprintf("%+v", m))
		w.mu.Unlock()
	}
}

// expect allows the console to say something with these words.
func (w *window) expect(words string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = append(w.expected, words)
}

func (w *window) expects(said string) bool {
	for _, words := range w.expected {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// do carries out steps.
func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.t.Fatalf("%v\nthe page is %s", err, w.describe())
	}
}

// value runs a script in the page and returns what it gives.
func value[T any](w *window, script string) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		w.t.Fatalf("%s: %v\nthe page is %s", script, err, w.describe())
	}
	return v
}

// within lets another test look through the window for a while.
func (w *window) within(t *testing.T, look func()) {
	before := w.t
	w.t = t
	defer func() { w.t = before }()
	look()
}

// visit goes to a path of the platform.
func (w *window) visit(path string) { w.t.Helper(); w.do(chromedp.Navigate(w.base + path)) }

// eventually waits until a script gives true.
func (w *window) eventually(what, script string, args ...any) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	poll := chromedp.PollFunction[bool](script, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(patience), chromedp.WithPollingArgs(args...))
	for {
		_, err := chromedp.Run(ctx, poll)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "(-32000)") { // else another page came in its place: ask that
			w.t.Fatalf("%s: %v\nthe page is %s", what, err, w.describe())
		}
	}
}

// sees waits until a text shows.
func (w *window) sees(text string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("waiting for %q", text), `text => document.body?.innerText.includes(text)`, text)
}

// misses waits until a text shows no more.
func (w *window) misses(text string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("waiting for %q to go", text), `text => document.body && !document.body.innerText.includes(text)`, text)
}

// at waits until the window shows a path.
func (w *window) at(path string) {
	w.t.Helper()
	w.eventually("waiting to be at "+path, `path => location.pathname === path && document.readyState === "complete"`, path)
}

// presses clicks the first button or link with this name that can be clicked.
func (w *window) presses(name string) {
	w.t.Helper()
	const find = `name => {
	const named = [...document.querySelectorAll("button, a, summary, input[type=submit]")].filter(e =>
		!e.disabled && e.checkVisibility() && (e.getAttribute("aria-label") || e.innerText || e.value || "").trim() === name);
	if (!named.length) return false;
	named[0].scrollIntoView({block: "center"});
	named[0].click();
	return true;
}`
	w.eventually(fmt.Sprintf("looking for something called %q to press", name), find, name)
}

// fills writes into the field with this label.
func (w *window) fills(label, text string) {
	w.t.Helper()
	const find = `(label, text) => {
	const field = [...document.querySelectorAll("input, textarea, select")].find(e => e.checkVisibility() &&
		([...(e.labels || [])].some(l => l.innerText.trim().startsWith(label)) || e.getAttribute("aria-label") === label || e.placeholder === label));
	if (!field) return false;
	field.focus();
	field.value = text;
	field.dispatchEvent(new Event("input", {bubbles: true}));
	field.dispatchEvent(new Event("change", {bubbles: true}));
	return true;
}`
	w.eventually(fmt.Sprintf("looking for the field %q", label), find, label, text)
}

// describe says what the window shows, for a failure.
func (w *window) describe() string {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	at, err := chromedp.Run(ctx, chromedp.Location())
	text, err2 := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText.slice(0, 3000) : ""`))
	if err := errors.Join(err, err2); err != nil {
		return err.Error()
	}
	if u, err := url.Parse(at); err == nil {
		at = u.RequestURI()
	}
	return at + ":\n" + text
}

// shoot keeps a picture of the window as it is.
func (w *window) shoot(name string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(pictures(w.t), name+".png"), png, 0o644)
	}
	if err != nil {
		w.t.Errorf("taking the picture %s: %v", name, err)
	}
}

// pictures is the directory in which pictures are kept: that of
// TERRIER_PICTURES, which `make pictures` sets, or the test's own.
func pictures(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("TERRIER_PICTURES")
	if dir == "" {
		dir = t.ArtifactDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

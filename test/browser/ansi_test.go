package browser

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The script that writes the lines of a log while a page is open does what the
// server does for those that were there before: both are held to one file of
// cases.
func TestLinesLookTheSameAsTheyCome(t *testing.T) {
	web := filepath.Join("..", "..", "internal", "web")
	raw, err := os.ReadFile(filepath.Join(web, "ansi", "testdata", "ansi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tests []struct {
		Name        string
		Lines, HTML []string
	}
	if err := json.Unmarshal(raw, &tests); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(web, "pages", "static"))))
	mux.HandleFunc("/blank", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>blank</title>`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	w := open(t, &testkit.Platform{HTTP: srv.URL})
	w.visit("/blank")
	type piece struct {
		Classes string `json:"classes"`
		Text    string `json:"text"`
	}
	got := value[[][][]piece](w, `import("/ansi.js").then(({ plainPen, runs }) => `+string(raw)+`.map((test) => {
		let pen = plainPen;
		return test.lines.map((line) => {
			const written = runs(line, pen);
			pen = written.pen;
			return written.runs;
		});
	}))`)
	if len(got) != len(tests) || len(got) == 0 {
		t.Fatalf("%d cases were written, want %d", len(got), len(tests))
	}
	for i, test := range tests {
		var lines []string
		for _, pieces := range got[i] {
			var line strings.Builder
			for _, p := range pieces {
				text := html.EscapeString(p.Text)
				if p.Classes != "" {
					text = `<span class="` + p.Classes + `">` + text + `</span>`
				}
				line.WriteString(text)
			}
			lines = append(lines, line.String())
		}
		if diff := cmp.Diff(lines, test.HTML); diff != "" {
			t.Errorf("%s (-script +server):\n%s", test.Name, diff)
		}
	}
}

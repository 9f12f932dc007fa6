package tenant

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// What docs/templates.md says of texts is so, and it names every function.
func TestDocumentOfTemplates(t *testing.T) {
	b, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	row := values("n", "3", "price", "2.50", "on", "yes", "empty", "", "cfg", `{"size":5,"zones":["a","b"]}`)
	render := func(text string) (any, error) {
		parsed, err := rendering.Parse(text)
		if err != nil {
			return nil, err
		}
		return parsed.Render(rendering.NewRun(row))
	}
	example := regexp.MustCompile("^\\| `(.*?\\{\\{.*?)` \\| `(.*?)` \\|")
	good, bad, refused := 0, 0, false
	for line := range strings.Lines(string(b)) {
		refused = refused || strings.HasPrefix(line, "Refused:")
		m := example.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		text, want := strings.ReplaceAll(m[1], `\|`, "|"), m[2]
		v, err := render(text)
		if refused {
			if bad++; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s is %v, %v; the document says %s", text, v, err, want)
			}
			continue
		}
		var got strings.Builder
		enc := json.NewEncoder(&got)
		enc.SetEscapeHTML(false)
		if good++; err != nil || enc.Encode(v) != nil || strings.TrimSpace(got.String()) != want {
			t.Errorf("%s is %s, %v; the document says %s", text, got.String(), err, want)
		}
	}
	if good < 15 || bad < 8 {
		t.Errorf("the document has %d examples of what works and %d of what does not", good, bad)
	}
	for _, name := range rendering.Functions() {
		if !strings.Contains(string(b), "`"+name+"`") {
			t.Errorf("the document does not name %s", name)
		}
	}
	var first tenantsv1.TenantTemplate
	if err := yaml.UnmarshalStrict([]byte(regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(b))[1]), &first); err != nil || len(first.Spec.Deployments) != 1 {
		t.Errorf("the first example is no TenantTemplate: %v", err)
	}
}

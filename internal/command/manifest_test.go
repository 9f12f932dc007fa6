package command

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

func TestApproveInManifest(t *testing.T) {
	const head = "# stacks of apps\napiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata:\n  name: net # the network\n"
	const other = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: net}\ndata:\n  spec: approvePlan\n"
	for name, tt := range map[string]struct{ before, after string }{
		"an empty text is replaced":         {`spec:` + "\n" + `  approvePlan: "" # by hand`, `spec:` + "\n" + `  approvePlan: plan-main-b8e362c206 # by hand`},
		"an old approval is replaced":       {"spec:\n  path: ./x\n  approvePlan: plan-main-0000000000\n", "spec:\n  path: ./x\n  approvePlan: plan-main-b8e362c206\n"},
		"quotes are replaced with it":       {"spec:\n  approvePlan: 'it''s'   \n", "spec:\n  approvePlan: plan-main-b8e362c206   \n"},
		"escaped quotes as well":            {`spec: {approvePlan: "a\"b", path: x}`, `spec: {approvePlan: plan-main-b8e362c206, path: x}`},
		"no value gets one":                 {"spec:\n  approvePlan:\n  path: x\n", "spec:\n  approvePlan: plan-main-b8e362c206\n  path: x\n"},
		"no field is added as the first":    {"spec:\n    # where\n    path: x # here\n", "spec:\n    # where\n    approvePlan: plan-main-b8e362c206\n    path: x # here\n"},
		"also inside braces":                {"spec: {path: x}", "spec: {approvePlan: plan-main-b8e362c206, path: x}"},
		"also inside empty ones":            {"spec: {}", "spec: {approvePlan: plan-main-b8e362c206}"},
		"characters count, not bytes":       {"spec: {path: ünï, approvePlan: ''}", "spec: {path: ünï, approvePlan: plan-main-b8e362c206}"},
		"two definitions are both approved": {"spec: {}\n---\n" + head + "spec: {path: y}", "spec: {approvePlan: plan-main-b8e362c206}\n---\n" + head + "spec: {approvePlan: plan-main-b8e362c206, path: y}"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ApproveInManifest([]byte(other+"---\n"+head+tt.before+"\n"+other), kinds.All(), query.Key{Namespace: "apps", Name: "net"}, "plan-main-b8e362c206")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), other+"---\n"+head+tt.after+"\n"+other); diff != "" {
				t.Errorf("manifest (-got +want):\n%s", diff)
			}
		})
	}
}

// A name that YAML would read as something else is quoted.
func TestApproveInManifestQuotes(t *testing.T) {
	const before = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net, namespace: apps}\nspec:\n  path: x\n"
	for _, plan := range []string{"true", "1e3", "plan: x", "a # b", "\"", "- x", "plan-ü"} {
		got, err := ApproveInManifest([]byte(before), kinds.All(), query.Key{Namespace: "apps", Name: "net"}, plan)
		if err != nil {
			t.Errorf("%q: %v", plan, err)
			continue
		}
		docs, err := query.ReadManifest(got)
		if err != nil || docs[0].Text("spec", "approvePlan") != plan {
			t.Errorf("%q became %q, %v", plan, got, err)
		}
	}
}

func TestApproveInManifestRefuses(t *testing.T) {
	const head = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net, namespace: apps}\n"
	for name, content := range map[string]string{
		"what is no YAML":              "a: [",
		"a file without the stack":     strings.Replace(head, "name: net", "name: other", 1) + "spec: {}\n",
		"the stack of another":         strings.Replace(head, "namespace: apps", "namespace: other", 1) + "spec: {}\n",
		"a stack without a spec":       head,
		"a value that is no text":      head + "spec:\n  approvePlan: [a]\n",
		"a value of several lines":     head + "spec:\n  approvePlan: |\n    plan\n",
		"a value that is shared":       head + "spec:\n  approvePlan: &p plan\n  path: *p\n",
		"a spec that comes from above": head + "x: &s {path: a}\nspec: *s\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ApproveInManifest([]byte(content), kinds.All(), query.Key{Namespace: "apps", Name: "net"}, "plan-x")
			if fault.Of(err) != fault.Invalid || got != nil {
				t.Errorf("ApproveInManifest() = %q, %v; want it to be invalid", got, err)
			}
		})
	}
}

// Whatever a manifest looks like, an edit changes the approval and nothing
// else, or is refused.
func FuzzApproveInManifest(f *testing.F) {
	f.Add("spec:\n  approvePlan: x\n", "plan-a")
	f.Add("spec: {a: 'b'}\n", "x: y")
	f.Fuzz(func(t *testing.T, tail, plan string) {
		content := "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net}\n" + tail
		got, err := ApproveInManifest([]byte(content), kinds.All(), query.Key{Namespace: "apps", Name: "net"}, plan)
		if err != nil {
			return
		}
		if err := sameBut([]byte(content), got, kinds.All(), query.Key{Namespace: "apps", Name: "net"}, plan); err != nil {
			t.Errorf("%q became %q: %v", content, got, err)
		}
	})
}

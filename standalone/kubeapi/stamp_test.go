package kubeapi

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"
)

// The rules of the stamps; config/admission has the same for clusters.
func TestStamps(t *testing.T) {
	const was = `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: bob, terrier.dev/note: x}}}`
	for name, c := range map[string]struct {
		was, now string
		want     map[string]string
	}{
		"a new object":           {"", `{spec: {interval: 1h}}`, map[string]string{changedBy: "eve", requestedBy: "eve"}},
		"a new one that decides": {"", `{spec: {approvePlan: p1}}`, map[string]string{changedBy: "eve", decidedBy: "eve", requestedBy: "eve", approvedBy: "p1\teve\tops"}},
		"a new one with a forgery": {"", `{spec: {}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: ann, terrier.dev/requested-by: ann, terrier.dev/approved-by: ann}}}`,
			map[string]string{changedBy: "eve", requestedBy: "eve"}},
		"the same": {was, was, map[string]string{changedBy: "ann", decidedBy: "bob", "terrier.dev/note": "x"}},
		"another spec": {was, `{spec: {interval: 2h, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: bob, terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "bob", requestedBy: "eve", "terrier.dev/note": "x"}},
		"another approval": {was, `{spec: {interval: 1h, approvePlan: p2}, metadata: {annotations: {terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", approvedBy: "p2\teve\tops", "terrier.dev/note": "x"}},
		"another spec behind another approval": {was, `{spec: {interval: 2h, approvePlan: p2}, metadata: {annotations: {terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", requestedBy: "eve", approvedBy: "p2\teve\tops", "terrier.dev/note": "x"}},
		"a second approval": {`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/approved-by: "p1\tann\np2\tbob"}}}`,
			`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/confirm: p1 again}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", approvedBy: "p1\tann\np1\teve\tops", "terrier.dev/confirm": "p1 again"}},
		"a second approval of the same user": {`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/approved-by: "p1\teve\told\np1\tann"}}}`,
			`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/confirm: p1 again}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", approvedBy: "p1\tann\np1\teve\tops", "terrier.dev/confirm": "p1 again"}},
		"no approval any more": {was, `{spec: {interval: 1h}, metadata: {annotations: {terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "bob", "terrier.dev/note": "x"}},
		"something said": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/note: z}}}`,
			map[string]string{changedBy: "eve", decidedBy: "bob", requestedBy: "eve", "terrier.dev/note": "z"}},
		"something no longer said": {was, `{spec: {interval: 1h, approvePlan: p1}}`, map[string]string{changedBy: "eve", decidedBy: "bob", requestedBy: "eve"}},
		"something of others": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/note: x, example.com/a: b}, finalizers: [f]}, status: {a: b}}`,
			map[string]string{changedBy: "ann", decidedBy: "bob", "terrier.dev/note": "x", "example.com/a": "b"}},
		"forged": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: bob, terrier.dev/decided-by: ann, terrier.dev/note: x}}}`,
			map[string]string{changedBy: "ann", decidedBy: "bob", "terrier.dev/note": "x"}},
		"forged where there is none": {`{spec: {}}`, `{spec: {}, metadata: {annotations: {terrier.dev/changed-by: bob}}}`, map[string]string{}},
		"a rejection": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/note: x, terrier.dev/rejected: p1}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", "terrier.dev/note": "x", "terrier.dev/rejected": "p1"}},
	} {
		t.Run(name, func(t *testing.T) {
			now, resource := parse(t, c.now), schema.GroupVersionResource{Group: "infra.contrib.fluxcd.io", Version: "v1alpha2", Resource: "terraforms"}
			attributes := admission.NewAttributesRecord(now, nil, schema.GroupVersionKind{}, "apps", "net", resource, "", admission.Create, nil, false, &user.DefaultInfo{Name: "eve", Groups: []string{"ops"}})
			if c.was != "" {
				attributes = admission.NewAttributesRecord(now, parse(t, c.was), schema.GroupVersionKind{}, "apps", "net", resource, "", admission.Update, nil, false, &user.DefaultInfo{Name: "eve", Groups: []string{"ops"}})
			}
			if err := (stamps{}).Admit(t.Context(), attributes, nil); err != nil {
				t.Fatal(err)
			}
			if got := now.GetAnnotations(); !maps.Equal(got, c.want) {
				t.Errorf("annotations are %v, want %v", got, c.want)
			}
		})
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

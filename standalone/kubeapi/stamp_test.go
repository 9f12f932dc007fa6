package kubeapi

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/kube"
)

// The rules of the stamps; config/admission has the same for clusters.
func TestStamps(t *testing.T) {
	const was = `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: bob, terrier.dev/note: x}}}`
	for name, c := range map[string]struct {
		was, now string
		want     map[string]string
	}{
		"a new object":           {"", `{spec: {interval: 1h}}`, map[string]string{changedBy: "eve", requestedBy: "1\teve"}},
		"a new one that decides": {"", `{spec: {approvePlan: p1}}`, map[string]string{changedBy: "eve", decidedBy: "eve", requestedBy: "1\teve", approvedBy: "p1\teve\tops"}},
		"a new one with a forgery": {"", `{spec: {}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: ann, terrier.dev/requested-by: ann, terrier.dev/approved-by: ann}}}`,
			map[string]string{changedBy: "eve", requestedBy: "1\teve"}},
		"the same": {was, was, map[string]string{changedBy: "ann", decidedBy: "bob", "terrier.dev/note": "x"}},
		"another spec": {was, `{spec: {path: x, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: bob, terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "bob", requestedBy: "2\teve", "terrier.dev/note": "x"}},
		"another approval": {was, `{spec: {interval: 1h, approvePlan: p2}, metadata: {annotations: {terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", approvedBy: "p2\teve\tops", "terrier.dev/note": "x"}},
		"another spec behind another approval": {was, `{spec: {path: x, approvePlan: p2}, metadata: {annotations: {terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", requestedBy: "2\teve", approvedBy: "p2\teve\tops", "terrier.dev/note": "x"}},
		"a second approval": {`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/approved-by: "p1\tann\np2\tbob"}}}`,
			`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/confirm: p1 again}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", approvedBy: "p1\tann\np1\teve\tops", "terrier.dev/confirm": "p1 again"}},
		"a second approval of the same user": {`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/approved-by: "p1\teve\told\np1\tann"}}}`,
			`{spec: {approvePlan: p1}, metadata: {annotations: {terrier.dev/confirm: p1 again}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", approvedBy: "p1\tann\np1\teve\tops", "terrier.dev/confirm": "p1 again"}},
		"no approval any more": {was, `{spec: {interval: 1h}, metadata: {annotations: {terrier.dev/note: x}}}`,
			map[string]string{changedBy: "eve", decidedBy: "bob", "terrier.dev/note": "x"}},
		"something said": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/note: z}}}`,
			map[string]string{changedBy: "eve", decidedBy: "bob", requestedBy: "2\teve", "terrier.dev/note": "z"}},
		"something no longer said": {was, `{spec: {interval: 1h, approvePlan: p1}}`, map[string]string{changedBy: "eve", decidedBy: "bob", requestedBy: "2\teve"}},
		"something of others": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/note: x, example.com/a: b}, finalizers: [f]}, status: {a: b}}`,
			map[string]string{changedBy: "ann", decidedBy: "bob", "terrier.dev/note": "x", "example.com/a": "b"}},
		"forged": {was, `{spec: {interval: 1h, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: bob, terrier.dev/decided-by: ann, terrier.dev/note: x}}}`,
			map[string]string{changedBy: "ann", decidedBy: "bob", "terrier.dev/note": "x"}},
		"forged where there is none": {`{spec: {}}`, `{spec: {}, metadata: {annotations: {terrier.dev/changed-by: bob}}}`, map[string]string{}},
		"an approval that is taken back": {`{spec: {approvePlan: auto}, metadata: {annotations: {terrier.dev/confirm: p1, terrier.dev/approved-by: "p1\tann"}}}`,
			`{spec: {approvePlan: auto}}`, map[string]string{changedBy: "eve"}},
		"a suspension asks for no plan": {`{spec: {suspend: false}, metadata: {annotations: {terrier.dev/requested-by: "1\tann"}}}`, `{spec: {suspend: true}}`,
			map[string]string{changedBy: "eve", requestedBy: "1\tann"}},
		"a change after others": {`{spec: {path: a}, metadata: {annotations: {terrier.dev/requested-by: "8\tann\n9\tbob"}}}`, `{spec: {path: b}}`,
			map[string]string{changedBy: "eve", requestedBy: "8\tann\n9\tbob\n10\teve"}},
		"an override of windows": {`{spec: {approvePlan: auto}}`, `{spec: {approvePlan: auto}, metadata: {annotations: {terrier.dev/override-window: p1 now}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", overriddenBy: "p1\teve\tops", "terrier.dev/override-window": "p1 now"}},
		"a second one": {`{spec: {}, metadata: {annotations: {terrier.dev/override-window: p1, terrier.dev/overridden-by: "p1\tann\np1\teve\np2\tbob"}}}`,
			`{spec: {}, metadata: {annotations: {terrier.dev/override-window: p1 again, terrier.dev/overridden-by: "p1\tzoe"}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", overriddenBy: "p1\tann\np1\teve\tops", "terrier.dev/override-window": "p1 again"}},
		"one that is taken back": {`{spec: {}, metadata: {annotations: {terrier.dev/override-window: p1, terrier.dev/overridden-by: "p1\tann"}}}`,
			`{spec: {}}`, map[string]string{changedBy: "eve"}},
		"one of no plan": {`{spec: {}, metadata: {annotations: {terrier.dev/override-window: p1, terrier.dev/overridden-by: "p1\tann"}}}`,
			`{spec: {}, metadata: {annotations: {terrier.dev/override-window: " p1"}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", overriddenBy: "p1\tann", "terrier.dev/override-window": " p1"}},
		"a rejection ends it": {`{spec: {}, metadata: {annotations: {terrier.dev/override-window: p1, terrier.dev/overridden-by: "p1\tann"}}}`,
			`{spec: {}, metadata: {annotations: {terrier.dev/override-window: p1, terrier.dev/rejected: p1}}}`,
			map[string]string{changedBy: "eve", decidedBy: "eve", "terrier.dev/override-window": "p1", "terrier.dev/rejected": "p1"}},
		"a forged one": {`{spec: {}}`, `{spec: {}, metadata: {annotations: {terrier.dev/overridden-by: "p1\tann"}}}`, map[string]string{}},
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

// Stamps of another epoch, or of none, are not kept: users may have written them.
func TestStampsOfAnotherEpoch(t *testing.T) {
	const forged = `{spec: {path: a, approvePlan: p1}, metadata: {annotations: {terrier.dev/changed-by: ann, terrier.dev/decided-by: ann, terrier.dev/requested-by: "1\tzoe", terrier.dev/approved-by: "p1\tann\np1\tbob"%s}}}`
	for name, c := range map[string]struct {
		was, now string
		want     map[string]string
	}{
		"of none":      {fmt.Sprintf(forged, ""), `{spec: {path: b, approvePlan: p1}}`, map[string]string{changedBy: "eve", requestedBy: "2\teve", epochOf: "E2"}},
		"of another":   {fmt.Sprintf(forged, ", terrier.dev/stamps: E1"), fmt.Sprintf(forged, ", terrier.dev/stamps: E2"), map[string]string{}},
		"of this one":  {fmt.Sprintf(forged, ", terrier.dev/stamps: E2"), `{spec: {path: a, approvePlan: p1}, metadata: {annotations: {terrier.dev/confirm: p1 x}}}`, map[string]string{changedBy: "eve", decidedBy: "eve", requestedBy: "1\tzoe", approvedBy: "p1\tann\np1\tbob\np1\teve\tops", epochOf: "E2", "terrier.dev/confirm": "p1 x"}},
		"by its maker": {"", fmt.Sprintf(forged, ", terrier.dev/stamps: E2"), map[string]string{changedBy: "eve", decidedBy: "eve", requestedBy: "1\teve", approvedBy: "p1\teve\tops", epochOf: "E2"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := parse(t, c.now)
			var was *unstructured.Unstructured
			if c.was != "" {
				was = parse(t, c.was)
			}
			stamps{epoch: "E2"}.stamp(now, was, &user.DefaultInfo{Name: "eve", Groups: []string{"ops"}})
			if got := now.GetAnnotations(); !maps.Equal(got, c.want) {
				t.Errorf("annotations are %v, want %v", got, c.want)
			}
		})
	}
}

// Of many changes the newest are kept, and their numbers tell that there were others.
func TestManyChanges(t *testing.T) {
	lines := ""
	for range 3 * mostRequests {
		lines = withRequest(lines, lines == "", &user.DefaultInfo{Name: "ann"})
	}
	all := strings.Split(lines, "\n")
	if len(all) != mostRequests || all[0] != "41\tann" || all[mostRequests-1] != "60\tann" {
		t.Errorf("%d changes are kept, from %q to %q", len(all), all[0], all[len(all)-1])
	}
}

// Package kube has the same names and the same beginning of an epoch.
func TestNamesOfStamps(t *testing.T) {
	if all := kube.Stamps(); !slices.Equal(all, stampNames) || ownEpoch != kube.ServerEpoch || overrideWindow != kube.OverrideWindow || approvePlan != kube.Confirm {
		t.Errorf("package kube has the stamps %q, want %q", all, stampNames)
	}
}

// A directory has one epoch, also after a restart. One of a release without epochs gets one.
func TestTheEpochOfADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stamps")
	first, err := ensureEpoch(path)
	if err != nil || len(first) != epochLength {
		t.Fatalf("ensureEpoch() = %q, %v", first, err)
	}
	if again, err := ensureEpoch(path); again != first || err != nil {
		t.Errorf("ensureEpoch() = %q, %v, want %q", again, err, first)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if other, err := ensureEpoch(path); other == first || err != nil {
		t.Errorf("ensureEpoch() = %q, %v after the file was removed, want another epoch", other, err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureEpoch(path); err == nil {
		t.Error("ensureEpoch() takes a file that is damaged")
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

package kube

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The joined parts of a plan are the plan, and show whether the last part is
// missing.
func TestAPlanInPartsIsWhole(t *testing.T) {
	k := testkit.Kube(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "app"}}
	if err := k.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	text := "x" + strings.Repeat("é", planChunkBytes) // every full part would cut a character
	if err := WriteReadablePlan(t.Context(), k.Client, owner, ReadablePlan{Workspace: "default", Name: "p", Text: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	var parts corev1.ConfigMapList
	if err := k.Client.List(t.Context(), &parts, client.InNamespace(k.Namespace), client.HasLabels{planNameLabel}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(parts.Items, func(a, b corev1.ConfigMap) int {
		return strings.Compare(a.Annotations[planChunk], b.Annotations[planChunk])
	})
	var whole bytes.Buffer
	for _, p := range parts.Items {
		part := p.Data[planKey]
		if !utf8.ValidString(part) {
			t.Errorf("%s is cut inside a character", p.Name)
		}
		if got, want := p.Annotations[planChunks], strconv.Itoa(len(parts.Items)); got != want {
			t.Errorf("%s says that there are %q parts, want %s", p.Name, got, want)
		}
		whole.WriteString(part)
	}
	if len(parts.Items) < 2 || whole.String() != text {
		t.Errorf("%d parts hold %d bytes, want the %d of the plan", len(parts.Items), whole.Len(), len(text))
	}
}

package kube

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// fill gives every field of v a value, so that each Secret and ConfigMap of a type is
// named. Names are numbered.
func fill(v reflect.Value, path string, names map[string]string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, names)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path, names)
	case reflect.Struct:
		for i := range v.NumField() {
			of := v.Type().Field(i)
			below := path + "." + of.Name
			lower := strings.ToLower(below)
			isName := of.Type.Kind() == reflect.String && (of.Name == "Name" || of.Name == "SecretName")
			switch {
			case isName && (strings.Contains(lower, "secret") || strings.Contains(lower, "configmap")):
				name := fmt.Sprintf("n%d", len(names))
				names[name] = below
				v.Field(i).SetString(name)
			case of.IsExported() && !strings.Contains(below, "Ephemeral"): // a template of a claim, which has no Secret
				fill(v.Field(i), below, names)
			}
		}
	default: // no name in it
	}
}

// Every field of a pod that names a Secret or a ConfigMap is known, those that a later
// version of Kubernetes adds included.
func TestMountsKnowEveryField(t *testing.T) {
	names := map[string]string{}
	var pod corev1.PodTemplateSpec
	pod.Spec.Volumes, pod.Spec.InitContainers, pod.Spec.Containers = make([]corev1.Volume, 1), make([]corev1.Container, 1), make([]corev1.Container, 1)
	pod.Spec.ImagePullSecrets = make([]corev1.LocalObjectReference, 1)
	pod.Spec.ImagePullSecrets[0].Name = "pull"
	names["pull"] = "imagePullSecrets"
	fill(reflect.ValueOf(&pod.Spec.Volumes[0]).Elem(), "volume", names)
	fill(reflect.ValueOf(&pod.Spec.InitContainers[0]).Elem(), "init", names)
	fill(reflect.ValueOf(&pod.Spec.Containers[0]).Elem(), "container", names)
	template, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	refs, err := Mounts(template, "team-a")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 16 {
		t.Fatalf("the types have %d names: the test sees too few", len(names))
	}
	got := map[string]bool{}
	for _, ref := range refs {
		got[ref.Name] = true
		if ref.Namespace != "team-a" {
			t.Errorf("%+v is of another namespace", ref)
		}
		if want := "Secret"; strings.Contains(strings.ToLower(names[ref.Name]), "configmap") == (ref.Kind == want) {
			t.Errorf("%s is a %s", names[ref.Name], ref.Kind)
		}
	}
	for name, path := range names {
		if !got[name] {
			t.Errorf("%s names an object, and Mounts does not know it", path)
		}
	}
}

func TestMountsOfNothing(t *testing.T) {
	for _, template := range []string{"", "{}", `{"spec":{"volumes":[{"name":"x","emptyDir":{}}]}}`} {
		if refs, err := Mounts(json.RawMessage(template), "a"); err != nil || len(refs) != 0 {
			t.Errorf("Mounts(%s) = %v, %v", template, refs, err)
		}
	}
	if refs, err := Mounts(json.RawMessage(`{"spec":7}`), "a"); err == nil {
		t.Errorf("Mounts() = %v, want an error", refs)
	}
}

package plan

import (
	"reflect"
	"testing"

	"github.com/terrier-iac/terrier/internal/stack"
)

func TestName(t *testing.T) {
	for revision, want := range map[string]string{
		"main@sha1:b8e362c206e3d0cbb7ed22ced771a0056455a2fb":       "plan-main-b8e362c206",
		"main/b8e362c206e3d0cbb7ed22ced771a0056455a2fb":            "plan-main-b8e362c206",
		"feature/new-vpc@sha1:b8e362c206e3d0cbb7ed22ced771a005":    "plan-feature-new-vpc-b8e362c206",
		"feature/new-vpc/b8e362c206e3d0cbb7ed22ced771a0056455a2fb": "plan-feature-new-vpc-b8e362c206",
		"refs/tags/v1.2.3@sha1:b8e362c206e3d0cb":                   "plan-refs-tags-v1.2.3-b8e362c206",
		"latest@sha256:ed6f71c31a5c8c6c7f0aa2a1b2b7ec39":           "plan-latest-ed6f71c31a",
		"sha256:ed6f71c31a5c8c6c7f0aa2a1b2b7ec39":                  "plan-ed6f71c31a",
		"sha1:b8e362c206e3d0cbb7ed22ced771a005":                    "plan-b8e362c206",
		"b8e362c206e3d0cbb7ed22ced771a005":                         "plan-b8e362c206",
		"main@sha1:b8e3":                                           "plan-main-b8e3",
		"team+x@sha1:b8e362c206e3":                                 "plan-team+x-b8e362c206",
		"a b\x1b@sha1:b8e362c206e3":                                "plan-a-b--b8e362c206",
		"":                                                         "plan",
	} {
		if got := Name(revision); got != want {
			t.Errorf("Name(%q) = %q, want %q", revision, got, want)
		}
	}
	if got, want := NameWith("plan-main-b8e362c206", "sha256:0123456789abcdef"), "plan-main-b8e362c206-01234567"; got != want {
		t.Errorf("NameWith() = %q, want %q", got, want)
	}
}

func TestDigestCoversEveryPart(t *testing.T) {
	base := Parts{
		PlanInputs: stack.PlanInputs{Revision: "main@sha1:1", Source: "s", Inputs: "i", Shape: "h", Engine: "e"},
		LockHash:   "l", Backend: "b", Lineage: "n", Serial: 3, ChangesHash: "c",
	}
	// Approvals that are waiting when the program is replaced must stay good.
	const want = "sha256:6e545f0fa0c113995316fba212ac5e05df5344eb42a6c9c2394cdb847230b73d"
	got := Digest(base)
	if got != want {
		t.Errorf("Digest() = %q, want %q as ever", got, want)
	}
	edit := func(name string, f func(*Parts), same bool) {
		p := base
		f(&p)
		if (Digest(p) == got) != same {
			t.Errorf("another %s: same digest %t, want %t", name, Digest(p) == got, same)
		}
	}
	edit("revision of the same source", func(p *Parts) { p.PlanInputs.Revision = "other@sha1:2" }, true)
	edit("destroy", func(p *Parts) { p.Destroy = true }, false)
	edit("serial", func(p *Parts) { p.Serial++ }, false)
	edit("border between two parts", func(p *Parts) { p.LockHash, p.Backend = "lb", "" }, false)

	// Every string of Parts and of its plan inputs, also those added later.
	for _, typ := range []reflect.Type{reflect.TypeFor[Parts](), reflect.TypeFor[stack.PlanInputs]()} {
		for i := range typ.NumField() {
			field := typ.Field(i)
			if field.Type.Kind() != reflect.String || field.Name == "Revision" {
				continue
			}
			edit(field.Name, func(p *Parts) {
				v := reflect.ValueOf(p).Elem()
				if typ == reflect.TypeFor[stack.PlanInputs]() {
					v = v.FieldByName("PlanInputs")
				}
				v.FieldByName(field.Name).SetString("another")
			}, false)
		}
	}
}

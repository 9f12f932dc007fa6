package states

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestVersionsAreBounded(t *testing.T) {
	c := newKeeper(Keeper{Records: openRecords(t)}, nil)
	for serial := range 80 {
		v := stack.StateVersion{By: "apply-1"}
		if serial%20 == 0 {
			v.Before = "destroy-1"
		}
		for range 2 { // as after a crash
			if err := c.Versions.keep(t.Context(), "uid", thing("l", serial), v, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := c.Versions.list(t.Context(), "uid")
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, v := range list.Versions {
		got = append(got, v.Serial)
	}
	want := []uint64{0, 20, 40}
	for serial := uint64(50); serial < 80; serial++ {
		want = append(want, serial)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the versions kept (-want +got):\n%s", diff)
	}
	keys, err := c.Records.Blobs.List(t.Context(), "stacks/uid/states/")
	if err != nil || len(keys) != len(want)+1 {
		t.Errorf("%d records, %v; want the versions and their list", len(keys), err)
	}
	for _, v := range list.Versions {
		if state, err := c.Records.Get(t.Context(), record.StateVersion("uid", v.Key())); err != nil || !bytes.Equal(state, thing("l", int(v.Serial))) {
			t.Errorf("the version %d is %q, %v", v.Serial, state, err)
		}
	}
	list.Trim(30, list.Versions[len(list.Versions)-1].Bytes*10)
	if len(list.Versions) != 10 || list.Versions[9].Serial != 79 {
		t.Errorf("%d versions up to %d fit into the bytes of ten, want the newest ten", len(list.Versions), list.Versions[len(list.Versions)-1].Serial)
	}
}

// A destroy begins with a version that is kept for as long as any is.
func TestTheStateBeforeADestroyIsMarked(t *testing.T) {
	state := thing("l", 3)
	c := newKeeper(Keeper{Store: &shelf{found: storedAs(state)}, Records: openRecords(t), Events: &events{}}, nil)
	for _, kind := range []stack.RunKind{stack.PlanRun, stack.DestroyRun} {
		if _, err := c.Start(t.Context(), subject("uid", &v1alpha2.Terraform{}), &kube.StateRef{}, string(kind)+"-1", kind, stack.Cause{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.Versions.list(t.Context(), "uid")
	if want := "destroy-1"; err != nil || len(list.Versions) != 1 || list.Versions[0].Before != want {
		t.Errorf("the versions are %+v, %v; want one before %s", list.Versions, err, want)
	}
}

// A list of versions whose key is lost stops no run, and stays with what it lists.
func TestVersionsWhoseKeyIsLost(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	with := func(b byte) *Keeper {
		key, err := blob.NewKey(bytes.Repeat([]byte{b}, 32))
		if err != nil {
			t.Fatal(err)
		}
		return newKeeper(Keeper{Records: &records.Store{Blobs: blob.Seal(files, key)}}, nil)
	}
	before, without := with(1), with(2)
	head := stack.StateID{Lineage: "l", Serial: 1, Digest: "d"}
	if err := before.Versions.keep(t.Context(), "uid", thing("l", 1), stack.StateVersion{}, &head); err != nil {
		t.Fatal(err)
	}
	if list, err := without.Versions.list(t.Context(), "uid"); err != nil || len(list.Versions) > 0 {
		t.Errorf("without the key the list is %+v, %v", list, err)
	}
	if err := without.Versions.keep(t.Context(), "uid", thing("l", 2), stack.StateVersion{}, nil); err != nil {
		t.Error(err)
	}
	if err := without.Versions.setHead(t.Context(), "uid", stack.StateID{Lineage: "l", Serial: 2}); err != nil {
		t.Error(err)
	}
	list, err := before.Versions.list(t.Context(), "uid")
	if err != nil || list.Head != head || len(list.Versions) != 1 {
		t.Fatalf("with the key the list is %+v, %v", list, err)
	}
	if _, err := before.Records.Get(t.Context(), record.StateVersion("uid", list.Versions[0].Key())); err != nil {
		t.Error(err)
	}
}

// A list that is lost, damaged or old costs no version.
func TestVersionsOutliveTheirList(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	key, err := blob.NewKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	sealed := blob.Seal(files, key)
	index := record.StateIndex("uid").Key
	for name, harm := range map[string]func(t *testing.T, old []byte){
		"lost": func(t *testing.T, _ []byte) {
			if err := files.Delete(t.Context(), index); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, _ []byte) {
			raw := blobtest.Get(t, files, index)
			raw[len(raw)-1] ^= 1
			blobtest.Put(t, files, index, raw)
		},
		"old": func(t *testing.T, old []byte) { blobtest.Put(t, files, index, old) },
	} {
		t.Run(name, func(t *testing.T) {
			vs := newKeeper(Keeper{Records: &records.Store{Blobs: sealed}}, nil).Versions
			keep := func(serial int) {
				if err := vs.keep(t.Context(), "uid", thing("l", serial), stack.StateVersion{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			var old []byte
			for serial := range versionsKept {
				keep(serial)
				if serial == 5 {
					old = blobtest.Get(t, files, index)
				}
			}
			before, err := files.List(t.Context(), record.StateVersions("uid"))
			if err != nil || len(before) != versionsKept+1 {
				t.Fatalf("there are %d records, %v; want the versions and their list", len(before), err)
			}
			harm(t, old)
			keep(versionsKept)
			after, err := files.List(t.Context(), record.StateVersions("uid"))
			if err != nil || len(after) != len(before)+1 {
				t.Errorf("of %d records %d are left, %v; want one more", len(before), len(after), err)
			}
			for _, k := range after {
				if err := files.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

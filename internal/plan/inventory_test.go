package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const inventoried = `{"version": 4, "serial": 3, "lineage": "x",
 "outputs": {"token": {"value": ["tok-en-1234"], "type": ["list", "string"], "sensitive": true}},
 "resources": [
  {"mode": "data", "type": "aws_ami", "name": "base", "instances": [{"attributes": {"id": "ami-1"}}]},
  {"mode": "managed", "type": "aws_bucket", "name": "b", "instances": [
    {"index_key": 0, "attributes": {"id": "b-0", "arn": "arn:aws:s3:::b-0"}},
    {"index_key": 1, "attributes": {"id": "b-1", "arn": ""}},
    {"deposed": "00000001", "attributes": {"id": "b-old", "arn": null}}]},
  {"module": "module.m", "mode": "managed", "type": "counter", "name": "c", "instances": [{"attributes": {"id": 12345678901234567890}}]},
  {"mode": "managed", "type": "key", "name": "marked", "instances": [{"attributes": {"id": "k-1"},
    "sensitive_attributes": [[{"type": "get_attr", "value": "id"}]]}]},
  {"mode": "managed", "type": "key", "name": "other", "instances": [{"attributes": {"id": "k-2", "nested": [{"secret": "s3cr3t-value"}]},
    "sensitive_attributes": [[{"type": "get_attr", "value": "nested"}, {"type": "index", "value": {"value": 0, "type": "number"}}, {"type": "get_attr", "value": "secret"}]]}]},
  {"mode": "managed", "type": "key", "name": "holds", "instances": [{"attributes": {"id": "x/s3cr3t-value/tok-en-1234/given-to-run"}}]},
  {"mode": "managed", "type": "old", "name": "flat", "instances": [{"attributes_flat": {"id": "f-1"}}]},
  {"mode": "managed", "type": "none", "name": "nameless", "instances": [{"attributes": {"id": null}}]}
 ]}`

func TestInventory(t *testing.T) {
	got, err := InventoryOf([]byte(inventoried), []string{"given-to-run"})
	want := Inventory{Items: []Item{
		{"b", "aws_bucket", "arn:aws:s3:::b-0"}, {"b", "aws_bucket", "b-1"}, {"b", "aws_bucket", "b-old"},
		{"c", "counter", "12345678901234567890"},
		{"marked", "key", Mask}, {"other", "key", "k-2"}, {"holds", "key", "x/" + Mask + "/" + Mask + "/" + Mask},
		{"flat", "old", "f-1"}, {"nameless", "none", ""},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("InventoryOf() = %v, -want +got:\n%s", err, diff)
	}
}

func TestInventoryOfLittle(t *testing.T) {
	for name, test := range map[string]struct {
		state string
		want  Inventory
	}{
		"no state":                {"", Inventory{Items: []Item{}}},
		"a state of nothing":      {`{"version": 4, "resources": []}`, Inventory{Items: []Item{}}},
		"only data":               {`{"resources": [{"mode": "data", "type": "t", "name": "n", "instances": [{"attributes": {"id": "x"}}]}]}`, Inventory{Items: []Item{}}},
		"an encrypted state":      {`{"serial": 1, "lineage": "x", "encrypted_data": "…"}`, Inventory{Items: []Item{}, Sealed: true}},
		"a resource in name":      {`{"resources": [{"mode": "managed", "type": "t", "name": "n"}]}`, Inventory{Items: []Item{}}},
		"strange attributes":      {`{"resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [{"attributes": [1]}]}]}`, Inventory{Items: []Item{{"n", "t", ""}}}},
		"everything marked":       {`{"resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [{"attributes": {"id": "x"}, "sensitive_attributes": [[]]}]}]}`, Inventory{Items: []Item{{"n", "t", Mask}}}},
		"a secret that is null":   {`{"resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [{"attributes": {"id": "thing-1", "secret": null}, "sensitive_attributes": [[{"value": "secret"}]]}]}]}`, Inventory{Items: []Item{{"n", "t", "thing-1"}}}},
		"a path that goes astray": {`{"resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [{"attributes": {"id": "thing-1"}, "sensitive_attributes": [[{"value": "secret"}]]}]}]}`, Inventory{Items: []Item{{"n", "t", Mask}}}},
		"a path that is lost":     {`{"resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [{"attributes": {"id": "x", "l": []}, "sensitive_attributes": [[{"value": "l"}, {"value": 4}]]}]}]}`, Inventory{Items: []Item{{"n", "t", "x"}}}},
	} {
		got, err := InventoryOf([]byte(test.state), nil)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: InventoryOf() = %v, -want +got:\n%s", name, err, diff)
		}
	}
	if _, err := InventoryOf([]byte("nonsense"), nil); err == nil {
		t.Error("a state that cannot be read has an inventory")
	}
}

// An object in a cluster has no room for everything.
func TestInventoryIsBounded(t *testing.T) {
	state := func(n int, id string) []byte {
		var instances []string
		for i := range n {
			instances = append(instances, fmt.Sprintf(`{"index_key": %d, "attributes": {"id": %q}}`, i, id))
		}
		return []byte(`{"resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [` + strings.Join(instances, ",") + `]}]}`)
	}
	for name, state := range map[string][]byte{
		"many":     state(inventoryItems+7, "x"),
		"long":     state(inventoryItems, strings.Repeat("ä", 4*identifier)),
		"longwide": state(500, strings.Repeat("x", identifier)),
	} {
		inv, err := InventoryOf(state, nil)
		if err != nil {
			t.Fatal(err)
		}
		size, err := json.Marshal(inv)
		if err != nil {
			t.Fatal(err)
		}
		if total := strings.Count(string(state), "index_key"); len(inv.Items)+inv.More != total || inv.More == 0 {
			t.Errorf("%s: %d are listed and %d more, want %d together", name, len(inv.Items), inv.More, total)
		}
		if len(inv.Items) > inventoryItems || len(size) > 2*inventoryBytes {
			t.Errorf("%s: the inventory has %d items in %d bytes", name, len(inv.Items), len(size))
		}
	}
}

// A state of another backend is as its engine, or another program, wrote it.
func FuzzInventory(f *testing.F) {
	f.Add([]byte(inventoried))
	f.Add([]byte(`{"resources": [{"mode": "managed", "instances": [{"attributes": {"l": [1]}, "sensitive_attributes": [[{"value": "l"}, {"value": {"value": 99999999999999999999}}]]}]}]}`))
	f.Fuzz(func(t *testing.T, state []byte) {
		inv, err := InventoryOf(state, []string{"given-to-run"})
		if err != nil {
			return
		}
		size := 0
		for _, it := range inv.Items {
			size += len(it.Name) + len(it.Type) + len(it.ID)
			if strings.Contains(it.ID, "given-to-run") {
				t.Errorf("an identifier shows what a run was given: %q", it.ID)
			}
		}
		if len(inv.Items) > inventoryItems || size > inventoryBytes {
			t.Errorf("%d items in %d bytes", len(inv.Items), size)
		}
	})
}

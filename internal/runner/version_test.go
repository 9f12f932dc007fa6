package runner

import (
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// A supervisor of another release does not know a new field of an order, and would run
// without what it says. So each change of the fields is another JobVersion.
func TestFieldsOfAnOrderHaveAVersion(t *testing.T) {
	golden := filepath.Join("testdata", "order.txt")
	version, fields := fmt.Sprintf("JobVersion %d\n", JobVersion), strings.Join(fieldsOf(reflect.TypeFor[Order](), ""), "\n")+"\n"
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was, had, _ := strings.Cut(string(text), "\n")
	was += "\n"
	if was == version && had != fields {
		t.Fatalf("an order has other fields than JobVersion %d: raise JobVersion, say in its comment what the last one lacked, and run go test ./internal/runner -run TestFieldsOfAnOrder -update\n%s", JobVersion, onlyOneHas(had, fields))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(version+fields), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if was != version {
		t.Errorf("%s is of %swant %srun go test ./internal/runner -run TestFieldsOfAnOrder -update", golden, was, version)
	}
}

// onlyOneHas are the lines that only one of two texts has.
func onlyOneHas(before, after string) string {
	var b strings.Builder
	for sign, texts := range map[string][2]string{"-": {before, after}, "+": {after, before}} {
		for line := range strings.Lines(texts[0]) {
			if !strings.Contains("\n"+texts[1], "\n"+line) {
				b.WriteString(sign + line)
			}
		}
	}
	return b.String()
}

// fieldsOf lists the fields of a type, as JSON has them: the path of each, and its kind.
func fieldsOf(of reflect.Type, path string) []string {
	switch {
	case of.Kind() == reflect.Pointer:
		return fieldsOf(of.Elem(), path)
	case of.Implements(reflect.TypeFor[json.Marshaler]()), of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return []string{path + " " + of.String()}
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		return fieldsOf(of.Elem(), path+"[]")
	case of.Kind() == reflect.Map:
		return fieldsOf(of.Elem(), path+"{}")
	case of.Kind() != reflect.Struct:
		return []string{path + " " + of.Kind().String()}
	}
	var all []string
	for f := range of.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && tag == "":
			all = append(all, fieldsOf(f.Type, path)...)
		case tag == "":
			all = append(all, fieldsOf(f.Type, path+"."+f.Name)...)
		default:
			all = append(all, fieldsOf(f.Type, path+"."+tag)...)
		}
	}
	return all
}

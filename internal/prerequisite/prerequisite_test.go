package prerequisite

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func yes() *bool { b := true; return &b }

// Every form of an item is read as it is written.
func TestParse(t *testing.T) {
	got, err := Parse([]byte(`[
		{"name": "vlan", "file": {"sourceRef": {"kind": "GitRepository", "namespace": "substrate", "name": "inventory"}, "path": "net/vlans.yaml", "pointer": "/vlans/100/name", "equals": 100}},
		{"name": "scope", "file": {"path": "dhcp.json", "pointer": ".scopes[0]", "exists": true}},
		{"name": "zone", "object": {"apiVersion": "v1", "kind": "ConfigMap", "name": "zones", "field": ".data.tenant", "equals": true}},
		{"name": "net", "output": {"name": "network", "key": "vpc_id", "equals": 1.50}},
		{"name": "web", "http": {"url": "https://ipam.example.com/health", "method": "HEAD", "status": 204}},
		{"name": "ssh", "tcp": {"host": "::1", "port": 22}}
	]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Prerequisite{
		{Name: "vlan", File: &File{Source: &Source{Kind: "GitRepository", Namespace: "substrate", Name: "inventory"}, Path: "net/vlans.yaml", Pointer: "/vlans/100/name", Equals: NewValue("100")}},
		{Name: "scope", File: &File{Path: "dhcp.json", Pointer: ".scopes[0]", Exists: yes()}},
		{Name: "zone", Object: &Object{APIVersion: "v1", Kind: "ConfigMap", Name: "zones", Field: ".data.tenant", Equals: NewValue("true")}},
		{Name: "net", Output: &Output{Name: "network", Key: "vpc_id", Equals: NewValue("1.5")}},
		{Name: "web", HTTP: &HTTP{URL: "https://ipam.example.com/health", Method: "HEAD", Status: 204}},
		{Name: "ssh", TCP: &TCP{Host: "::1", Port: 22}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Value{})); diff != "" {
		t.Errorf("Parse() is not what was written (-want +got):\n%s", diff)
	}
}

// An error names the item and the field, and says what it may be.
func TestParseErrors(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no list":                   {`{"name": "a"}`, "is not a list"},
		"an item that is a text":    {`["a"]`, "[0]: is not an object"},
		"no name":                   {`[{"tcp": {"host": "a", "port": 1}}]`, "[0].name: nothing is no name"},
		"a name with capitals":      {`[{"name": "VLAN", "tcp": {"host": "a", "port": 1}}]`, `[0].name: "VLAN" is no name`},
		"the same name twice":       {`[{"name": "a", "tcp": {"host": "a", "port": 1}}, {"name": "a", "tcp": {"host": "b", "port": 1}}]`, `[1].name: "a" is the name of another`},
		"no kind":                   {`[{"name": "a"}]`, "[0]: has 0 of object, output, file, http and tcp"},
		"two kinds":                 {`[{"name": "a", "tcp": {"host": "a", "port": 1}, "http": {"url": "https://a"}}]`, "[0]: has 2 of"},
		"an unknown kind":           {`[{"name": "a", "udp": {}}]`, "[0].udp: there is no such field"},
		"an unknown field":          {`[{"name": "a", "tcp": {"host": "a", "prot": 1}}]`, "[0].tcp.prot: there is no such field"},
		"a text for a number":       {`[{"name": "a", "tcp": {"host": "a", "port": "22"}}]`, "[0].tcp.port: is a string, and must be a whole number"},
		"a port beyond all":         {`[{"name": "a", "tcp": {"host": "a", "port": 70000}}]`, "[0].tcp.port: 70000 is no port"},
		"a host with a port":        {`[{"name": "a", "tcp": {"host": "a:22", "port": 22}}]`, `[0].tcp.host: "a:22" is no name`},
		"an object without a kind":  {`[{"name": "a", "object": {"apiVersion": "v1", "name": "x"}}]`, "[0].object.kind: is missing"},
		"a field and a condition":   {`[{"name": "a", "object": {"apiVersion": "v1", "kind": "K", "name": "x", "field": ".a", "condition": "Ready"}}]`, "[0].object: has a condition and a field"},
		"equals without a field":    {`[{"name": "a", "object": {"apiVersion": "v1", "kind": "K", "name": "x", "equals": 1}}]`, "[0].object.field: is missing"},
		"a value of a Secret":       {`[{"name": "a", "object": {"apiVersion": "v1", "kind": "Secret", "name": "x", "field": ".data.p", "equals": "x"}}]`, "[0].object.field: values of a Secret are not compared"},
		"of one, spelt otherwise":   {`[{"name": "a", "object": {"apiVersion": "/v1", "kind": "Secret", "name": "x", "field": ".data.p", "equals": "x"}}]`, "[0].object.field: values of a Secret are not compared"},
		"a filter of values":        {`[{"name": "a", "object": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "field": "{.data[?(@ > 'm')]}"}}]`, "[0].object.field: has a filter"},
		"a list to be equal to":     {`[{"name": "a", "output": {"name": "x", "key": "k", "equals": [1]}}]`, "[0].output: equals is a list"},
		"an output without a key":   {`[{"name": "a", "output": {"name": "x"}}]`, "[0].output.key: is missing"},
		"a path out of the source":  {`[{"name": "a", "file": {"path": "../x"}}]`, `[0].file.path: "../x" is no path below the root`},
		"a path of the machine":     {`[{"name": "a", "file": {"path": "/etc/passwd"}}]`, "[0].file.path:"},
		"exists without a pointer":  {`[{"name": "a", "file": {"path": "x", "exists": false}}]`, "[0].file.pointer: is missing"},
		"equals and exists":         {`[{"name": "a", "file": {"path": "x", "pointer": "/a", "exists": true, "equals": 1}}]`, "[0].file: has equals and exists"},
		"a pointer that is no path": {`[{"name": "a", "file": {"path": "x", "pointer": "bad"}}]`, "[0].file.pointer: no path"},
		"a password in an address":  {`[{"name": "a", "http": {"url": "https://u:p@a"}}]`, "[0].http.url: has a user or a password"},
		"another scheme":            {`[{"name": "a", "http": {"url": "file:///etc/passwd"}}]`, "[0].http.url:"},
		"a method that writes":      {`[{"name": "a", "http": {"url": "https://a", "method": "POST"}}]`, `[0].http.method: "POST" is neither`},
		"a body of HEAD":            {`[{"name": "a", "http": {"url": "https://a", "method": "HEAD", "bodyContains": "x"}}]`, "[0].http.bodyContains:"},
		"too many":                  {`[` + strings.Repeat(`{},`, 32) + `{}]`, "has 33 items"},
		"too long":                  {`["` + strings.Repeat("x", maxText) + `"]`, "has "},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tt.text), func(path string) error {
				if path == "bad" {
					return errors.New("no path")
				}
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || got != nil {
				t.Errorf("Parse() = %v, %v, want an error that begins with %q", got, err, tt.want)
			}
		})
	}
}

// A value is compared as it is written, and shown unless it is secret.
func TestJudge(t *testing.T) {
	vlan := func(values ...any) Found { return Found{What: "the file f", Path: "/vlan", Values: values} }
	secret := vlan("30")
	secret.Secret = true
	for name, tt := range map[string]struct {
		found  Found
		equals *Value
		absent bool
		want   Result
	}{
		"a number":              {vlan(int64(100)), NewValue("100"), false, Result{Reason: Met, Message: `the file f at /vlan is "100"`}},
		"a quoted number":       {vlan("100"), NewValue("100"), false, Result{Reason: Met, Message: `the file f at /vlan is "100"`}},
		"one of several":        {vlan("a", true), NewValue("true"), false, Result{Reason: Met, Message: `the file f at /vlan is "true"`}},
		"another value":         {vlan(int64(30)), NewValue("100"), false, Result{Reason: Different, Message: `the file f at /vlan is "30", and must be "100"`}},
		"another, secret value": {secret, NewValue("100"), false, Result{Reason: Different, Message: `the file f at /vlan is not "100"`}},
		"a list":                {vlan([]any{}), NewValue("100"), false, Result{Reason: Different, Message: `the file f at /vlan is "a list or an object", and must be "100"`}},
		"nothing":               {vlan(), NewValue("100"), false, Result{Reason: NotFound, Message: "the file f at /vlan has no value"}},
		"anything":              {vlan([]any{}), nil, false, Result{Reason: Met, Message: "the file f at /vlan has a value"}},
		"nothing, as it must":   {vlan(), nil, true, Result{Reason: Met, Message: "the file f at /vlan has nothing"}},
		"a value in the way":    {vlan("x"), nil, true, Result{Reason: Different, Message: "the file f at /vlan has a value, and must have none"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Judge("", tt.found, tt.equals, tt.absent); got != tt.want {
				t.Errorf("Judge() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What a stack waits for is what is missing. What was met a while ago counts while it is asked
// again, so that a stack does not lose its place among those that wait to run.
func TestUnmet(t *testing.T) {
	met, gone := Result{Name: "a", Reason: Met}, Result{Name: "b", Reason: NotFound, Message: "b does not exist"}
	old, first := Result{Name: "c", Reason: Met, Stale: true}, Result{Name: "d", Reason: Checking}
	denied, much := Result{Name: "e", Reason: Denied, Message: "no right"}, Result{Name: "f", Reason: TooMany, Message: "many are asked"}
	for name, tt := range map[string]struct {
		all     []Result
		want    string
		refused bool
	}{
		"all are there":           {[]Result{met}, "", false},
		"none is asked for":       {nil, "", false},
		"one is missing":          {[]Result{met, gone}, "Waiting for 1 prerequisite: b: b does not exist. Terrier checks again by itself", false},
		"two are missing":         {[]Result{gone, denied}, "Waiting for 2 prerequisites: b: b does not exist; e: no right. Terrier checks again by itself", false},
		"one may not be read":     {[]Result{met, denied}, "Waiting for 1 prerequisite: e: no right. Change what the message names, or remove the prerequisite from the annotation terrier.dev/prerequisites", true},
		"one is being asked":      {[]Result{met, old, first}, "Checking the prerequisites d", false},
		"one is asked again":      {[]Result{met, old}, "", false},
		"one is not asked yet":    {[]Result{met, much}, "Waiting for 1 prerequisite: f: many are asked. Terrier checks again by itself", false},
		"what is missing is said": {[]Result{old, gone}, "Waiting for 1 prerequisite: b: b does not exist. Terrier checks again by itself", false},
	} {
		if got := Unmet(tt.all); got != tt.want {
			t.Errorf("%s: Unmet() = %q, want %q", name, got, tt.want)
		}
		if got := Refused(tt.all); got != tt.refused {
			t.Errorf("%s: Refused() = %t, want %t", name, got, tt.refused)
		}
	}
}

// No text makes Parse panic, and what it takes has exactly one kind each.
func FuzzParse(f *testing.F) {
	f.Add(`[{"name": "a", "tcp": {"host": "a", "port": 1}}]`)
	f.Add(`[{"name": "a", "file": {"path": "a/b", "pointer": "/x", "equals": "y"}}]`)
	f.Add(`[{"name": "a", "object": {"apiVersion": "v1", "kind": "K", "name": "n", "condition": "Ready"}}, null]`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse([]byte(text), nil)
		if err != nil {
			return
		}
		for _, p := range all {
			kinds := 0
			for _, set := range []bool{p.Object != nil, p.Output != nil, p.File != nil, p.HTTP != nil, p.TCP != nil} {
				if set {
					kinds++
				}
			}
			if kinds != 1 || !json.Valid([]byte(text)) {
				t.Errorf("Parse(%q) took %+v, which has %d kinds", text, p, kinds)
			}
		}
	})
}

package externalsecret

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestWhereSecretsAre(t *testing.T) {
	for name, tt := range map[string]struct{ mount, key, want string }{
		"below the path of the store":     {"kyuubi", "database", "kyuubi/database"},
		"with the path in the key":        {"kyuubi", "kyuubi/database", "kyuubi/database"},
		"as the API of the server has it": {"kyuubi", "kyuubi/data/database", "kyuubi/database"},
		"without a path in the store":     {"", "kyuubi/team/database", "kyuubi/team/database"},
		"without it, with data":           {"", "kyuubi/data/database", "kyuubi/database"},
		"a path of several parts":         {"team/kv/", "a/b", "team/kv/a/b"},
		"a secret that is called data":    {"kyuubi", "data/x", "kyuubi/data/x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (RemoteRef{Key: tt.key}).read(tt.mount); got.Path != tt.want {
				t.Errorf("read() = %v, want %s", got, tt.want)
			}
		})
	}
}

func assemble(t *testing.T, s Spec, whole string) (Content, error) {
	t.Helper()
	if err := s.Check("app"); err != nil {
		t.Fatal(err)
	}
	values := map[Read]Value{}
	if whole != "" {
		for _, r := range s.Reads("kyuubi") {
			values[r] = Value{Whole: json.RawMessage(whole)}
		}
	}
	return s.Assemble("kyuubi", values)
}

// Values arrive as they are: binary texts, several lines, JSON.
func TestWhatASecretHolds(t *testing.T) {
	const whole = `{"password":"line 1\nline \u0000 2","port":3306,"json":"{\"a\":[{\"b\":\"<x>\"}]}","nested":{"list":["zero","one"]},"a.b":"dotted","none":null,"b64":"aGVsbG8="}`
	key := func(secretKey, property string) Spec {
		return good(func(s *Spec) {
			s.Data = []Data{{SecretKey: secretKey, RemoteRef: RemoteRef{Key: "database", Property: property}}}
		})
	}
	extract := func(change func(*RemoteRef)) Spec {
		return good(func(s *Spec) {
			r := &RemoteRef{Key: "database"}
			change(r)
			s.Data, s.DataFrom = nil, []DataFrom{{Extract: r}}
		})
	}
	for name, tt := range map[string]struct {
		spec  Spec
		whole string
		want  map[string]string
	}{
		"a text of two lines":      {key("k", "password"), whole, map[string]string{"k": "line 1\nline \x00 2"}},
		"a number":                 {key("k", "port"), whole, map[string]string{"k": "3306"}},
		"a text with JSON":         {key("k", "json"), whole, map[string]string{"k": `{"a":[{"b":"<x>"}]}`}},
		"a part of it":             {key("k", "json.a.0.b"), whole, map[string]string{"k": "<x>"}},
		"an element of a list":     {key("k", "nested.list.1"), whole, map[string]string{"k": "one"}},
		"a key with a dot in it":   {key("k", "a.b"), whole, map[string]string{"k": "dotted"}},
		"all of it":                {key("k", ""), `{"b":"<2>", "a":1}`, map[string]string{"k": `{"a":1,"b":"<2>"}`}},
		"each key":                 {extract(func(*RemoteRef) {}), `{"a":"1","b":{"c":2},"d":null}`, map[string]string{"a": "1", "b": `{"c":2}`}},
		"each key of a part":       {extract(func(r *RemoteRef) { r.Property = "json" }), `{"json":"{\"x\":\"y\"}"}`, map[string]string{"x": "y"}},
		"keys that no Secret has":  {extract(func(*RemoteRef) {}), `{"a b/c":"1"}`, map[string]string{"a_b_c": "1"}},
		"the same by their code":   {extract(func(r *RemoteRef) { r.ConversionStrategy = "Unicode" }), `{"a b":"1"}`, map[string]string{"a_U0020_b": "1"}},
		"decoded":                  {extract(func(r *RemoteRef) { r.DecodingStrategy = "Base64" }), `{"a":"aGVsbG8="}`, map[string]string{"a": "hello"}},
		"decoded if it is encoded": {extract(func(r *RemoteRef) { r.DecodingStrategy = "Auto" }), `{"a":"aGVsbG8=","b":"it is not"}`, map[string]string{"a": "hello", "b": "it is not"}},
		"a single key counts more": {good(func(s *Spec) {
			s.DataFrom = []DataFrom{{Extract: &RemoteRef{Key: "database"}}}
			s.Data[0].RemoteRef.Property = "other"
		}), `{"password":"1","other":"2"}`, map[string]string{"password": "2", "other": "2"}},
		"texts made of it": {good(func(s *Spec) {
			s.Target.Template = &Template{Data: map[string]string{"url": "mysql://{{ .password | urlquery }}@db"}}
		}), `{"mariadb_password":"p&w"}`, map[string]string{"url": "mysql://p%26w@db"}},
		"texts beside it": {good(func(s *Spec) {
			s.Target.Template = &Template{MergePolicy: "Merge", Data: map[string]string{"b64": "{{ .password | b64enc }}"}}
		}), `{"mariadb_password":"p"}`, map[string]string{"password": "p", "b64": "cA=="}},
		"a text that is no template": {good(func(s *Spec) { s.Target.Template = &Template{Data: map[string]string{"user": "kyuubi"}} }), `{"mariadb_password":"{{ p }}"}`, map[string]string{"user": "kyuubi"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := assemble(t, tt.spec, tt.whole)
			if err != nil || len(got.Gone) > 0 {
				t.Fatalf("Assemble() = %+v, %v", got.Gone, err)
			}
			texts := map[string]string{}
			for k, v := range got.Data {
				texts[k] = string(v)
			}
			if diff := cmp.Diff(texts, tt.want); diff != "" {
				t.Errorf("Assemble() (-got +want):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNotInVault(t *testing.T) {
	for name, tt := range map[string]struct {
		whole string
		gone  string
		left  bool
	}{
		"the secret":         {"", "the secret kyuubi/database", false},
		"a key of it":        {`{"other":"x"}`, `the key "mariadb_password" of the secret kyuubi/database`, false},
		"a key without text": {`{"mariadb_password":null}`, `the key "mariadb_password"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := assemble(t, good(), tt.whole)
			if err != nil || len(got.Gone) != 1 || !strings.HasPrefix(got.Gone[0], tt.gone) || got.Left != tt.left {
				t.Errorf("Assemble() = %+v, %v", got, err)
			}
		})
	}
}

// No error holds a value, whatever a function of a template says of its arguments.
func TestNoErrorHoldsAValue(t *testing.T) {
	const canary = "canary-value"
	for name, text := range map[string]string{
		"a function that quotes":           `{{ .password | fromJson }}`,
		"a number that is none":            `{{ add .password 1 }}`,
		"a failure with the value":         `{{ fail .password }}`,
		"a name that is the value":         `{{ index (dict "a" "b") .password }}`,
		"a field of what is a text":        `{{ .password.x }}`,
		"a variable that lacks, and a try": `{{ .passwort }}{{ fail .password }}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := good(func(s *Spec) { s.Target.Template = &Template{Data: map[string]string{"a": text}} })
			if err := s.Check("app"); err != nil { // the template itself is refused
				return
			}
			_, err := assemble(t, s, `{"mariadb_password":"`+canary+`"}`)
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("Assemble() = %v", err)
			}
		})
	}
	s := good(func(s *Spec) { s.Target.Template = &Template{Data: map[string]string{"a": "{{ .passwort }}"}} })
	if _, err := assemble(t, s, `{"mariadb_password":"`+canary+`"}`); fault.Reason(err, "") != ReasonTemplate || !strings.Contains(err.Error(), "there is no variable passwort") {
		t.Errorf("a variable that lacks: %v, want it named", err)
	}
}

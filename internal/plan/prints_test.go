package plan

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestPrintsHideWhatTheRedactorHides(t *testing.T) {
	secrets := []string{"hunter2hunter2", "line one\nand line two", "häßlich"}
	r := NewRedactor(secrets)
	data, err := json.Marshal(r.Prints([]byte("a key")))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		if strings.Contains(string(data), s) || strings.Contains(string(data), base64.StdEncoding.EncodeToString([]byte(s))) {
			t.Errorf("%q stands in its prints", s)
		}
	}
	var p Prints
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "abc", "nothing to see", "hunter2hunter2", "x hunter2hunter2 hunter2hunter2 y", "only line one here", "häßlich",
		"user:" + base64.StdEncoding.EncodeToString([]byte("häßlich")), "hunter2hunter", `x["hunter2hunter2"].a`,
	} {
		if got, want := p.String(text), r.String(text); got != want {
			t.Errorf("String(%q) = %q, want %q", text, got, want)
		}
	}
	if got := NewRedactor(nil).Prints(nil).String("as it is"); got != "as it is" {
		t.Errorf("prints of nothing make %q of a text", got)
	}
	if got := p.String(strings.Repeat("x", maxLooks)); got != Mask {
		t.Errorf("a text that is too long to be looked through = %.20q, want it hidden whole", got)
	}
}

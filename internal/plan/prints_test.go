package plan

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
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
	p.Begin = nil
	if got := p.String(strings.Repeat("x", maxLooks)); got != Mask {
		t.Errorf("a text that is too long to be looked through = %.20q, want it hidden whole", got)
	}
}

func TestRemembered(t *testing.T) {
	m := Remembered{Key: []byte("a key")}
	const old, now, pin, long = "old-password-1", "new-password-2", "007", "54321"
	if !m.Add([]string{old, pin, "x", "true"}) || m.Add([]string{pin, old}) {
		t.Error("values are new the first time, and only then")
	}
	if !m.Add([]string{now, pin, long}) {
		t.Error("a value that changed is new")
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{old, now, pin, long} {
		if strings.Contains(string(data), `"`+s) {
			t.Errorf("%q stands in what is kept: %s", s, data)
		}
	}
	var kept Remembered
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	p, err := kept.Prints()
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`"old-password-1"`:                                           `"` + Mask + `"`,
		`{"url":"https://u:new-password-2@h/"}`:                      `{"url":"https://u:` + Mask + `@h/"}`,
		`["` + base64.StdEncoding.EncodeToString([]byte(now)) + `"]`: `["` + Mask + `"]`,
		`{"port":54321,"other":543210,"n":7}`:                        `{"n":7,"other":543210,"port":"` + Mask + `"}`,
		`{"pin":"007","note":"agent 007"}`:                           `{"note":"agent 007","pin":"` + Mask + `"}`,
		`{"yes":true,"none":null,"x":"x"}`:                           `{"none":null,"x":"x","yes":true}`,
		`{"key of old-password-1":1}`:                                `{"key of ` + Mask + `":1}`,
		`"nothing to see here"`:                                      `"nothing to see here"`,
	} {
		if got := string(encode(p.hidden(decode([]byte(value))))); got != want {
			t.Errorf("%s becomes %s, want %s", value, got, want)
		}
		if p.Holds([]byte(value)) != (strings.Contains(want, Mask)) {
			t.Errorf("Holds(%s) = %v", value, p.Holds([]byte(value)))
		}
	}
	if got := string(p.RedactJSON([]byte(`{"mode":"007","after":{"pin":"007"}}`))); got != `{"after":{"pin":"`+Mask+`"},"mode":"007"}` {
		t.Errorf("a short value outside of values: %s", got)
	}
	if got := string(p.Lines([]byte("a old-password-1\nb new-password-2\nc\n"))); got != "a "+Mask+"\nb "+Mask+"\nc\n" {
		t.Errorf("Lines() = %q", got)
	}
}

// What was made for runs is hidden as well, and pushes out none of the values that a state may
// hold for longer.
func TestValuesOfRunsPushOutNoOthers(t *testing.T) {
	const rotated = "the value of a Secret that was rotated"
	made := func(run int) string {
		var lines strings.Builder
		for line := range 100 {
			fmt.Fprintf(&lines, "line %d of what was made for the run %d\n", line, run)
		}
		return lines.String()
	}
	m := Remembered{Key: []byte("k")}
	m.Add([]string{rotated})
	for run := range 600 {
		if !m.AddMade([]string{made(run)}) {
			t.Fatalf("nothing is new of the run %d", run)
		}
	}
	hides := func(text string) bool {
		t.Helper()
		prints, err := m.Prints()
		if err != nil {
			t.Fatal(err)
		}
		return prints.String(text) == Mask
	}
	if !hides(rotated) || !hides("line 7 of what was made for the run 599") || hides("line 7 of what was made for the run 0") {
		t.Errorf("hidden are the value of a Secret: %t, the newest that was made: %t, the oldest: %t; want the first two",
			hides(rotated), hides("line 7 of what was made for the run 599"), hides("line 7 of what was made for the run 0"))
	}
	if !m.Add([]string{made(599)}) || m.Add([]string{made(599)}) {
		t.Error("a value that a Secret holds now counts as made for a run")
	}
}

// What a stack is given again and again does not grow without bound, and what it is
// given now is always known.
func TestRememberedIsBounded(t *testing.T) {
	m := Remembered{Key: []byte("k")}
	var sheet strings.Builder
	for i := range 3000 {
		sheet.WriteString(strings.Repeat("a line of a large secret ", 1) + strings.Repeat(string(rune('a'+i%26)), 1+i/26) + "\n")
	}
	for i := range 10 {
		m.Add([]string{"value " + string(rune('0'+i)), sheet.String() + string(rune('0'+i))})
	}
	forms := 0
	for _, v := range m.Values {
		forms += len(v.Forms)
	}
	if len(m.Values) < 2 || forms > 2*formsKept {
		t.Errorf("%d values with %d forms are kept, want a bound", len(m.Values), forms)
	}
	p, err := m.Prints()
	if err != nil {
		t.Fatal(err)
	}
	if got := p.String("it is value 9"); got != "it is "+Mask {
		t.Errorf("the value of now: %q", got)
	}
}

// Prints of an earlier release have no hints.
func TestPrintsWithoutHints(t *testing.T) {
	p := NewRedactor([]string{"hunter2hunter2"}).Prints([]byte("k"))
	p.Begin = nil
	if got := p.String("a hunter2hunter2 b"); got != "a "+Mask+" b" {
		t.Errorf("String() = %q", got)
	}
}

// While it is not known which values are secret, none is shown, and the form of a
// document stays.
func TestPrintsOfAnIncompleteRecord(t *testing.T) {
	m := Remembered{Key: []byte("k"), Lost: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ReadRemembered(data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := kept.Prints()
	if err != nil {
		t.Fatal(err)
	}
	const doc = `{"format_version":"1.2","resource_changes":[{"address":"a.b","change":{"actions":["update"],"after":{"n":2,"on":true,"x":["new"]},"before":{"n":1,"on":true,"x":["old"]}}}],"checks":[{"problems":[{"message":"old is odd"}]}]}`
	const want = `{"checks":[{"problems":[{"message":"` + Mask + `"}]}],"format_version":"1.2","resource_changes":[{"address":"a.b","change":{"actions":["update"],"after":{"n":"` + Mask + `","on":true,"x":["` + Mask + `"]},"before":{"n":"` + Mask + `","on":true,"x":["` + Mask + `"]}}}]}`
	if got := string(p.RedactJSON([]byte(doc))); got != want {
		t.Errorf("RedactJSON() = %s, want %s", got, want)
	}
	if got := p.String("i-1") + p.String("") + string(p.Lines([]byte("x = old\ny = new\n"))); got != Mask+Mask+"\n" {
		t.Errorf("texts become %q", got)
	}
	if !p.Holds([]byte(`"open"`)) || string(encode(p.hidden(map[string]any{"a": "open"}))) != `{"a":"`+Mask+`"}` {
		t.Error("a value is shown")
	}
}

// A release that does not know Lost cannot read an incomplete record, and what it
// writes stays incomplete.
func TestAnIncompleteRecordInAnEarlierRelease(t *testing.T) {
	type earlier struct {
		Key    []byte            `json:"key"`
		Values []RememberedValue `json:"values"`
	}
	lost := time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	m := Remembered{Key: []byte("k"), Lost: lost}
	m.Add([]string{"hunter2-hunter2"})
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var e earlier
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	if _, err := (Remembered{Key: e.Key, Values: e.Values}).Prints(); err == nil {
		t.Error("an earlier release reads it")
	}
	written := Remembered{Key: e.Key, Values: e.Values}
	written.Add([]string{"of-the-earlier-release"})
	e.Values = written.Values
	if data, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRemembered(data)
	if err != nil || !got.Lost.Equal(lost) || len(got.Values) != 2 {
		t.Fatalf("ReadRemembered() = %+v, %v, want two values, and it incomplete", got, err)
	}
	got.Lost = time.Time{}
	if data, err = json.Marshal(got); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadRemembered(data); err != nil || !got.Lost.IsZero() || len(got.Values) != 2 {
		t.Errorf("ReadRemembered() of a complete one = %+v, %v", got, err)
	}
}

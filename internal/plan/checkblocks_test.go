package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

// checksDocument is a plan with check blocks and a postcondition.
const checksDocument = `{"format_version":"1.2",
"variables":{"s":{"value":"staple-and-elephant"}},"configuration":{"root_module":{"variables":{"s":{"sensitive":true}}}},
"checks":[
{"address":{"kind":"check","to_display":"module.m.check.b"},"status":"fail","instances":[
 {"address":{"to_display":"module.m[1].check.b"},"status":"fail","problems":[{"message":"the key is correct-horse-battery"},{"message":"a text\nof lines with staple-and-elephant"}]},
 {"address":{"to_display":"module.m[0].check.b"},"status":"pass"}]},
{"address":{"kind":"check","to_display":"check.a"},"status":"error","instances":[{"address":{"to_display":"check.a"},"status":"error"}]},
{"address":{"kind":"check","to_display":"check.c"},"status":"unknown","instances":[{"address":{"to_display":"check.c"},"status":"unknown"}]},
{"address":{"kind":"check","to_display":"check.none"},"status":"pass"},
{"address":{"kind":"resource","to_display":"t.a"},"status":"fail","instances":[{"address":{"to_display":"t.a"},"status":"fail"}]}]}`

func TestCheckBlocksOfAPlan(t *testing.T) {
	d := parse(t, []byte(checksDocument))
	want := stack.CheckBlocks{
		Failed: []stack.FailedCheckBlock{
			{Address: "check.a"},
			{Address: "module.m[1].check.b", Message: "a text of lines with (sensitive), the key is (sensitive)"},
		},
		Unknown: []string{"check.c"},
	}
	if diff := cmp.Diff(want, d.CheckBlocks(NewRedactor(canaries))); diff != "" {
		t.Errorf("CheckBlocks() (-want +got):\n%s", diff)
	}
	var b strings.Builder
	if err := Render(&b, parse(t, d.Masked()), Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "Failing check blocks (2)\n  ! check.a") || strings.Contains(b.String(), "staple") {
		t.Errorf("Render() = %s", b.String())
	}
}

func TestCheckBlocksOfAState(t *testing.T) {
	var objects []string
	for i := range 30 {
		objects = append(objects, fmt.Sprintf(`{"object_addr":"module.m[%02d].check.a","status":"fail","failure_messages":["%s"]}`, i, strings.Repeat("x", 5000)))
	}
	got, err := CheckBlocksOfState([]byte(`{"check_results":[{"object_kind":"check","objects":[` + strings.Join(objects, ",") + `]},{"object_kind":"output","objects":[{"object_addr":"output.a","status":"fail"}]}]}`))
	if err != nil || len(got.Failed) != mostCheckBlocks || got.More != 30-mostCheckBlocks || len(got.Failed[0].Message) > mostCheckMessage {
		t.Errorf("CheckBlocksOfState() = %d failed and %d more, %v; want it bounded", len(got.Failed), got.More, err)
	}
	if got, err := CheckBlocksOfState([]byte(`{"check_results":null}`)); err != nil || len(got.Failed) > 0 {
		t.Errorf("CheckBlocksOfState() of a state without check blocks = %v, %v", got, err)
	}
	if _, err := CheckBlocksOfState([]byte(`{`)); err == nil {
		t.Error("a broken state has no error")
	}
}

func TestWarningsOfCheckBlocks(t *testing.T) {
	for line, want := range map[string]bool{
		`{"severity":"warning","summary":"Check block assertion failed","snippet":{"context":"check \"a\"","code":"x"}}`: true,
		`{"severity":"warning","summary":"Unable to read","snippet":{"context":"check \"a\"","code":"x"}}`:               true,
		`{"severity":"warning","summary":"Unable to read","snippet":{"context":"check.a.data","code":"x"}}`:              true,
		`{"severity":"warning","summary":"data.x.y: Unable to read"}`:                                                    true,
		`{"severity":"warning","summary":"Argument is deprecated","snippet":{"context":"resource \"a\" \"b\""}}`:         false,
		`{"severity":"warning","summary":"Argument is deprecated","snippet":{"context":null}}`:                           false,
		`{"severity":"error","summary":"Unable to read","snippet":{"context":"check \"a\""}}`:                            false,
	} {
		e, err := ParseEvent([]byte(`{"@level":"warn","@message":"m","type":"diagnostic","diagnostic":` + line + `}`))
		if d, ok := e.(Diagnosed); err != nil || !ok || d.CheckBlock != want {
			t.Errorf("%s is of a check block: %+v, %v; want %v", line, e, err, want)
		}
	}
}

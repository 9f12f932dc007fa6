package memo

import (
	"strconv"
	"testing"
)

func TestMemory(t *testing.T) {
	var m Memory[int]
	compiled := map[string]int{}
	of := func(text string) int {
		return m.Of(text, func() int { compiled[text]++; return len(text) })
	}
	const most = 2 * Half / overhead
	for i := range 2 * most {
		if got := of("used all the time"); got != len("used all the time") {
			t.Fatalf("Of() = %d", got)
		}
		of(strconv.Itoa(i))
	}
	if n := compiled["used all the time"]; n != 1 {
		t.Errorf("what is used all the time was compiled %d times", n)
	}
	if n := len(m.newer) + len(m.older); n > most {
		t.Errorf("%d texts are remembered, more than %d", n, most)
	}
	if of("7"); compiled["7"] != 2 {
		t.Errorf("what nobody uses was compiled %d times, want 2", compiled["7"])
	}
}

package runner

import (
	"io"
	"strings"
	"testing"
)

// However a program's output is copied, a buffer takes no more than it may, and no part
// after one that it did not take.
func TestCappedStaysCapped(t *testing.T) {
	c := &capped{most: 10}
	n, err := io.Copy(c, io.LimitReader(strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20))
	if err != nil || n != 1<<20 || !c.over || c.String() != "xxxxxxxxxx" {
		t.Errorf("of %d bytes it took %d, over %v, %v", n, len(c.Bytes()), c.over, err)
	}
	c = &capped{most: 10}
	for _, part := range []string{"12345", "67890a", "b"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Error(err)
		}
	}
	if c.String() != "1234567890" || !c.over {
		t.Errorf("it took %q, over %v", c.String(), c.over)
	}
}

package plural

import "testing"

func TestCount(t *testing.T) {
	for _, tt := range []struct {
		n    int
		noun string
		want string
	}{
		{0, "tag", "0 tags"}, {1, "tag", "1 tag"}, {2, "tag", "2 tags"},
		{2, "entry", "2 entries"}, {2, "day", "2 days"}, {1, "alias", "1 alias"}, {3, "alias", "3 aliases"},
		{2, "patch", "2 patches"}, {2, "more stack", "2 more stacks"}, {2, "y", "2 ys"},
	} {
		if got := Count(tt.n, tt.noun); got != tt.want {
			t.Errorf("Count(%d, %q) = %q, want %q", tt.n, tt.noun, got, tt.want)
		}
	}
}

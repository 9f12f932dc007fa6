package web

import (
	"slices"
	"testing"
)

// How many streams are open is told as they come and go, and not for one that
// found no place.
func TestOpenStreamsAreTold(t *testing.T) {
	var told []int
	s := &streams{total: 2, each: 2, tell: func(open int) { told = append(told, open) }}
	var leave []func()
	for _, name := range []string{"ann", "ann", "bob"} {
		if l, ok := s.enter(name); ok {
			leave = append(leave, l)
		}
	}
	for _, l := range leave {
		l()
	}
	if want := []int{1, 2, 1, 0}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

package tenant

import (
	"math/big"
	"strings"
	"time"
)

// markTimes are the forms in which databases write times.
var markTimes = [...]string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02"}

// older reports whether a high-water mark is less than one before it. No mark is
// less than any. Marks are compared as numbers or as times if both are, and as
// texts otherwise.
func older(mark, before string) bool {
	if mark == "" || before == "" {
		return mark == "" && before != ""
	}
	if a, ok := new(big.Rat).SetString(mark); ok {
		if b, ok := new(big.Rat).SetString(before); ok {
			return a.Cmp(b) < 0
		}
	}
	if a, ok := markTime(mark); ok {
		if b, ok := markTime(before); ok {
			return a.Before(b)
		}
	}
	return strings.Compare(mark, before) < 0
}

func markTime(s string) (time.Time, bool) {
	for _, form := range markTimes {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

package pages

import (
	"strconv"
)

// offsetOf is from which row on a list of total rows is shown: what the visitor
// asks for, as far as there are rows.
func offsetOf(v *Visit, total, limit int) int {
	n, err := strconv.Atoi(v.Query.Get("offset"))
	if err != nil || n < 0 || total == 0 {
		return 0
	}
	return min(n, (total-1)/limit*limit)
}

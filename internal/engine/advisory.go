package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// The oldest OpenTofu versions without known holes that a run can fall into before a
// review: the installers of 1.12.0-1.12.2 and of everything before 1.11.10 can be
// crashed, starved or made to read files by what they download.
const (
	floor     = "1.12.3"
	floor1_11 = "1.11.10"
)

// Advisory returns a warning about running version of OpenTofu, or "".
func Advisory(version string) string {
	v, ok := parts(version)
	if !ok {
		return fmt.Sprintf("the version %q of the engine cannot be compared: use OpenTofu %s or newer", version, floor)
	}
	least := floor
	if v[0] == 1 && v[1] == 11 {
		least = floor1_11
	}
	if low, _ := parts(least); !less(v, low) {
		return ""
	}
	return fmt.Sprintf("OpenTofu %s has known vulnerabilities in what it downloads at init: use %s or newer", version, least)
}

// parts splits 1.12.6 or 1.13.0-beta1; a pre-release counts as its release,
// since a fix is in the betas of the version that brings it.
func parts(version string) (v [3]int, ok bool) {
	core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	fields := strings.Split(core, ".")
	if len(fields) != len(v) {
		return v, false
	}
	for i, f := range fields {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

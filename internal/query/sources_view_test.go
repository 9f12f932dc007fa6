package query

import (
	"strings"
	"testing"
)

// The credentials in the address of a source are never shown, however it is written.
// The HTTP API sends it as it is here.
func TestAddressesOfSourcesHoldNoPasswords(t *testing.T) {
	for address, want := range map[string]string{
		"https://robot:hunter2@git.example.com/a.git": "https://git.example.com/a.git",
		"https://hunter2@git.example.com/a.git":       "https://git.example.com/a.git",
		"https://robot:hun@ter2@git.example.com/a":    "https://git.example.com/a",
		"https://robot:%zzhunter2@git.example.com/a":  "git.example.com/a",
		"https://robot:%zz@hunter2@git.example.com/a": "git.example.com/a",
		"oci://robot:hunter2@registry.example.com/a":  "oci://registry.example.com/a",
		"ssh://git:hunter2@git.example.com/a":         "ssh://git.example.com/a",
		"robot:hunter2@minio.example.com:9000/box":    "minio.example.com:9000/box",
		"hunter2@minio.example.com/box":               "minio.example.com/box",

		"ssh://git@git.example.com/a":              "ssh://git@git.example.com/a", // the user of every client there
		"git@git.example.com:a.git":                "git.example.com:a.git",
		"minio.example.com:9000/box":               "minio.example.com:9000/box",
		"oci://registry.example.com:5000/a@latest": "oci://registry.example.com:5000/a@latest",
		"": "",
	} {
		got := withoutPassword(address)
		if got != want || strings.Contains(got, "hunter2") {
			t.Errorf("withoutPassword(%q) = %q, want %q", address, got, want)
		}
	}
}

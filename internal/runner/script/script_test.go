package script

import (
	"slices"
	"testing"
)

func TestInterpreter(t *testing.T) {
	for line, want := range map[string][]string{
		"":                            nil,
		"echo #!/bin/sh":              nil,
		"#!":                          nil,
		"#!/bin/sh":                   {"/bin/sh"},
		"#! /bin/bash -eu ":           {"/bin/bash", "-eu"},
		"#!/usr/bin/env -S python -u": {"/usr/bin/env", "-S python -u"},
		"#!/bin/bash\r":               {"/bin/bash"},
		"#!/bin/bash\t-x\r":           {"/bin/bash", "-x"},
	} {
		if got := interpreter([]byte(line)); !slices.Equal(got, want) {
			t.Errorf("interpreter(%q) = %q, want %q", line, got, want)
		}
	}
}

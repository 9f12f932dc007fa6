package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// asProgram tells this test binary to be a program with four acts.
const asProgram = "FAILPOINT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if done := os.Getenv(asProgram); done != "" {
		os.Exit(program4(done))
	}
	os.Exit(m.Run())
}

// program4 does its acts and says in the file done which have happened.
func program4(done string) int {
	if err := Arm(os.Getenv(Env)); err != nil {
		return 2
	}
	f, err := os.OpenFile(done, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 3
	}
	defer f.WriteString("deferred ")
	for _, key := range []string{"a/b7/report.json", "a/b8/log.txt", "a/b9/report.json"} {
		func() {
			defer Act("put", key)()
			_, _ = f.WriteString(filepath.Base(key) + " ")
		}()
	}
	func() {
		defer Act("wipe", "")()
		_, _ = f.WriteString("wiped ")
	}()
	return 0
}

func run(t *testing.T, value, file string) (happened string, code int) {
	t.Helper()
	done := filepath.Join(t.TempDir(), "done")
	c := exec.Command(os.Args[0])
	c.Env = []string{asProgram + "=" + done, Env + "=" + strings.Replace(value, "FILE", file, 1)}
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && exit.ExitCode() < 0 {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(done)
	return strings.TrimSpace(string(b)), c.ProcessState.ExitCode()
}

func TestProgramsEndWhereTheyAreTold(t *testing.T) {
	for name, tt := range map[string]struct {
		value, happened string
		code            int
		crash           string
	}{
		"nothing is asked for":      {"", "report.json log.txt report.json wiped deferred", 0, ""},
		"acts are counted":          {"count@FILE", "report.json log.txt report.json wiped deferred", 0, ""},
		"before the first":          {"crash:before:1@FILE", "", Exit, "put/a/_/report.json"},
		"after the first":           {"crash:after:1@FILE", "report.json", Exit, "put/a/_/report.json"},
		"before the second by name": {"crash:before:put/a/_/report.json#2@FILE", "report.json log.txt", Exit, "put/a/_/report.json"},
		"a name alone is the first": {"crash:after:put/a/_/log.txt@FILE", "report.json log.txt", Exit, "put/a/_/log.txt"},
		"without a key":             {"crash:before:wipe@FILE", "report.json log.txt report.json", Exit, "wipe"},
		"an act that never comes":   {"crash:before:9@FILE", "report.json log.txt report.json wiped deferred", 0, ""},
		"a value that says nothing": {"crash:57@FILE", "", 2, ""},
		"a file that is not there":  {"count@FILE.not", "", 2, ""},
		"no file":                   {"count", "", 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "acts")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			happened, code := run(t, tt.value, file)
			if happened != tt.happened || code != tt.code {
				t.Errorf("happened %q, exit %d; want %q, exit %d", happened, code, tt.happened, tt.code)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if crash, _ := Crashed(text); crash.Name != tt.crash {
				t.Errorf("the file says it crashed at %q, want %q:\n%s", crash.Name, tt.crash, text)
			}
		})
	}
}

func TestProgramsShareOneOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "acts")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "count@FILE", file)
	happened, code := run(t, "crash:before:6@FILE", file)
	if want := "report.json"; happened != want || code != Exit {
		t.Errorf("the second program did %q and exited with %d, want %q and %d", happened, code, want, Exit)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range Acts(text) {
		names = append(names, a.Name)
	}
	if want := []string{"put/a/_/report.json", "put/a/_/log.txt", "put/a/_/report.json", "wipe", "put/a/_/report.json", "put/a/_/log.txt"}; !slices.Equal(names, want) {
		t.Errorf("the file holds %v, want %v", names, want)
	}
}

func BenchmarkActWhenOff(b *testing.B) {
	for b.Loop() {
		Act("put", "a/b/c")()
	}
}

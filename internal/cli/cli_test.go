package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// said is the output of a command.
type said struct {
	out, err string
	code     int
}

// env is one without a cluster, in a directory of its own.
func env(t *testing.T) Env {
	t.Helper()
	return Env{Dir: t.TempDir(), Now: func() time.Time { return noon }, Version: "v1.2.3", Stdin: strings.NewReader("")}
}

func (e Env) run(t *testing.T, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	e.Args, e.Stdout, e.Stderr = args, &out, &errs
	code := run(ctx, e)
	return said{out.String(), errs.String(), code}
}

const manifest = `apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: network, namespace: apps}
spec:
  sourceRef: {kind: GitRepository, name: modules}
  writeOutputsToSecret: {name: network-outputs}
`

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	bad := filepath.Join(dir, "bad.yaml")
	for path, content := range map[string]string{good: manifest, bad: "kind: Secret\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help is not an error":            {[]string{"--help"}, 0, ""},
		"nothing is help":                 {nil, 0, ""},
		"the version":                     {[]string{"version"}, 0, ""},
		"the version, as other programs":  {[]string{"--version"}, 0, ""},
		"a manifest is explained":         {[]string{"explain", "-f", good}, 0, ""},
		"a command that is none":          {[]string{"frobnicate"}, 2, "unknown command"},
		"a flag that is none":             {[]string{"get", "--frobnicate"}, 2, "unknown flag"},
		"a format that is none":           {[]string{"get", "-o", "xml"}, 2, "no format"},
		"a command with a slip in it":     {[]string{"appprove", "a"}, 2, "did you mean: approve"},
		"a command of a group":            {[]string{"state", "vesions"}, 2, "did you mean: versions"},
		"too few arguments":               {[]string{"approve"}, 2, "an argument is missing; the usage is: terrier approve STACK [PLAN]"},
		"too many arguments":              {[]string{"get", "a", "b"}, 2, "2 arguments given, which does not match; the usage is: terrier get [STACK]"},
		"arguments where none belong":     {[]string{"audit", "list", "a"}, 2, "the usage is: terrier audit list"},
		"a kept plan and a new one":       {[]string{"plan", "a", "--destroy", "--digest", "sha256:0"}, 2, "use only one of them"},
		"a comment that has no place":     {[]string{"approve", "a", "-f", "a.yaml", "-m", "fine"}, 2, "use only one of them"},
		"one stack and all of them":       {[]string{"suspend", "a", "--all"}, 2, "name one stack"},
		"neither one stack nor all":       {[]string{"resume"}, 2, "name one stack"},
		"a lock without its name":         {[]string{"force-unlock", "a"}, 2, "--lock-id"},
		"a manifest without a stack":      {[]string{"explain", "-f", bad}, 2, "no Terraform"},
		"a file that is not there":        {[]string{"explain", "-f", "nowhere.yaml"}, 4, "nowhere.yaml"},
		"no cluster is configured":        {[]string{"get"}, 2, "no cluster"},
		"a kubeconfig that is not there":  {[]string{"get", "--kubeconfig", "/nowhere"}, 2, "/nowhere"},
		"an address that is no artifact":  {[]string{"push", ".", "ghcr.io/a/b:v1"}, 2, "oci://"},
		"an address without a registry":   {[]string{"push", ".", "oci://apps/network:v1"}, 2, "names no registry: write oci://"},
		"a registry and nothing in it":    {[]string{"push", ".", "oci://ghcr.io"}, 2, "names no registry: write oci://"},
		"a directory that is not there":   {[]string{"push", "nowhere", "oci://ghcr.io/a/b:v1"}, 4, "there is no directory"},
		"changes as exit code, and worse": {[]string{"plan", "a", "--exit-code"}, 1, "no cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			got := env(t).run(t, tt.args...)
			if got.code != tt.code || !strings.Contains(got.err, tt.says) {
				t.Errorf("exit %d and %q, want %d and something of %q", got.code, got.err, tt.code, tt.says)
			}
			if tt.code == 0 {
				if got.err != "" || got.out == "" {
					t.Errorf("says %q and complains %q, want an answer only", got.out, got.err)
				}
				return
			}
			// One sentence, and what to do.
			if !strings.HasPrefix(got.err, "terrier: ") || strings.Contains(got.err, "Usage:") || strings.Count(got.err, "\n") > 2 {
				t.Errorf("complains %q, want one sentence and a hint", got.err)
			}
		})
	}
}

// A cluster that cannot be reached is not an error of the person.
func TestUnreachable(t *testing.T) {
	e := env(t)
	config := filepath.Join(e.Dir, "config")
	content := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"c","user":{"token":"t"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got := e.run(t, "get", "--kubeconfig", config)
	if got.code != 6 || !strings.Contains(got.err, "cannot be reached") || !strings.Contains(got.err, "terrier up") {
		t.Errorf("exit %d and %q, want 6, why, and what to do", got.code, got.err)
	}
}

func TestExplainManifest(t *testing.T) {
	e := env(t)
	e.Stdin = strings.NewReader(manifest)
	golden(t, "testdata/explain-manifest.txt", e.run(t, "explain", "-f", "-").out)
}

// A name cannot control the terminal that prints it.
func TestHostileManifest(t *testing.T) {
	e := env(t)
	e.Stdin = strings.NewReader(strings.Replace(manifest, "name: network,", `name: "net\u001b[2Jwork\u202e",`, 1))
	got := e.run(t, "explain", "-f", "-")
	if strings.ContainsAny(got.out, "\x1b\u202e") || !strings.Contains(got.out, `net\x1b[2Jwork\u202e`) {
		t.Errorf("prints %q, want the control characters made visible", got.out)
	}
}

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/scan"
)

// A scan of a directory ends with zero findings once each is replaced, allowed or known.
func TestScanUntilZero(t *testing.T) {
	e := env(t)
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(e.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("app.yaml", "env:\n- name: DB_PASSWORD\n  value: quartz-lantern-7\n")
	write("prod.tfvars", "password = \"quartz-lantern-7\"\n")

	got := e.run(t, "scan")
	if got.code != 1 || strings.Contains(got.out+got.err, "quartz") {
		t.Errorf("exit %d and %q, want exit 1 and no value", got.code, got.out)
	}
	for _, want := range []string{
		"app.yaml:3: env[0][DB_PASSWORD] is a literal value (•••)\n", "prod.tfvars:1: password is a literal value (•••)\n",
		"  In environment variables: Give the variable valueFrom.secretKeyRef.", "2 findings in 2 files.\n",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("says %q, want %q in it", got.out, want)
		}
	}

	got = e.run(t, "scan", ".", "-o", "json")
	var r scan.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != 1 || len(r.Findings) != 2 || r.Findings[0].Line != 3 {
		t.Errorf("exit %d, %v and %+v, want two findings as JSON", got.code, err, r)
	}

	if got = e.run(t, "scan", "--baseline", "known.json", "--write-baseline"); got.code != 0 || got.out != "Wrote 2 findings to known.json.\n" {
		t.Errorf("exit %d and %q, want a baseline of two findings", got.code, got.out)
	}
	if got = e.run(t, "scan", "--baseline", "known.json"); got.code != 0 || got.out != "0 findings in 3 files, 2 known by the baseline.\n" {
		t.Errorf("exit %d and %q, want nothing new", got.code, got.out)
	}

	write("app.yaml", "env:\n- name: DB_PASSWORD\n  valueFrom: {secretKeyRef: {name: 'vault://kyuubi/database', key: password}}\n")
	write("prod.tfvars", "# terrier:allow-secret of a database that lives for one test\npassword = \"quartz-lantern-7\"\n")
	got = e.run(t, "scan", "--baseline", "known.json")
	if got.code != 0 || got.out != "0 findings in 3 files, 1 allowed by a comment.\n" || !strings.Contains(got.err, "The baseline has 2 entries that are found no more") {
		t.Errorf("exit %d, %q and %q, want zero findings and a note of the baseline", got.code, got.out, got.err)
	}
}

func TestScanOfFiles(t *testing.T) {
	e := env(t)
	if err := os.WriteFile(filepath.Join(e.Dir, "a.yaml"), []byte("password: quartz-lantern-7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		in   string
		code int
		says string
	}{
		"one file":                       {[]string{"scan", "-f", "a.yaml"}, "", 1, "a.yaml:1: password is a literal value"},
		"a file as the argument":         {[]string{"scan", "a.yaml"}, "", 1, "1 finding in 1 file."},
		"standard input":                 {[]string{"scan", "-f", "-"}, "export API_KEY=abc\n", 1, "-:1: [API_KEY] is a literal value"},
		"nothing in it":                  {[]string{"scan", "-f", "-"}, "region: eu\n", 0, "0 findings in 1 file."},
		"an excluded file":               {[]string{"scan", "--exclude", "*.yaml"}, "", 0, "0 findings in 0 files."},
		"a pattern that is none":         {[]string{"scan", "--exclude", "["}, "", 2, "no pattern"},
		"a file that is not there":       {[]string{"scan", "-f", "b.yaml"}, "", 4, "b.yaml"},
		"a directory that is not there":  {[]string{"scan", "nowhere"}, "", 4, "there is no directory nowhere"},
		"two ways at once":               {[]string{"scan", ".", "--cluster"}, "", 2, "exclude each other"},
		"states without a cluster":       {[]string{"scan", "--states"}, "", 2, "are for --cluster"},
		"a baseline without a name":      {[]string{"scan", "--write-baseline"}, "", 2, "name the file"},
		"a baseline that is none":        {[]string{"scan", "--baseline", "a.yaml"}, "", 2, "reading the baseline"},
		"a cluster without a kubeconfig": {[]string{"scan", "--cluster"}, "", 2, "no cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			e := e
			e.Stdin = strings.NewReader(tt.in)
			if got := e.run(t, tt.args...); got.code != tt.code || !strings.Contains(got.out+got.err, tt.says) {
				t.Errorf("exit %d, %q and %q, want %d and something of %q", got.code, got.out, got.err, tt.code, tt.says)
			}
		})
	}
}

// Objects of the cluster are scanned as those in files are, but for its Secrets.
func TestScanOfACluster(t *testing.T) {
	e := newEstate(t)
	e.cluster.Apply(t, `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {ldap.password: quartz-lantern-7, level: info}
---
apiVersion: v1
kind: Secret
metadata: {name: database}
stringData: {password: quartz-lantern-7}
`)
	got := e.run(t, "scan", "--cluster")
	if got.code != 1 || !strings.Contains(got.out, "/settings: ConfigMap/settings data[ldap.password] is a literal value (•••)\n") || strings.Contains(got.out, "quartz") {
		t.Errorf("exit %d and %q %q, want the ConfigMap alone, without its value", got.code, got.out, got.err)
	}
	if !strings.Contains(got.out, "1 finding in ") {
		t.Errorf("says %q, want one finding", got.out)
	}
	if got = e.run(t, "scan", "--cluster", "-n", "elsewhere", "--states"); got.code != 0 {
		t.Errorf("exit %d, %q and %q of a namespace without objects, want 0", got.code, got.out, got.err)
	}
}

package scan_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/scan"
)

// random is a text without meaning of n characters. It is no secret.
func random(n int) string { return strings.Repeat("a1B2c3D4e5F6g7H8", 1+n/16)[:n] }

// Tokens are put together here, so that no other scanner finds them in this file.
func TestFormats(t *testing.T) {
	for rule, token := range map[string]string{
		"private-key":        "-----BEGIN RSA " + "PRIVATE KEY-----",
		"aws-access-key":     "AKIA" + "Q3EGR7TZ2M5XWVNB",
		"github-token":       "ghp_" + random(36),
		"gitlab-token":       "glpat-" + random(20),
		"slack-token":        "xoxb-" + random(24),
		"slack-webhook":      "https://hooks.slack" + ".com/services/T01ABCDEF/B01ABCDEF/" + random(24),
		"google-api-key":     "AIza" + random(35),
		"jwt":                "eyJ" + random(20) + ".eyJ" + random(30) + "." + random(43),
		"vault-token":        "hvs." + random(90),
		"openbao-token":      "s." + random(24),
		"terraform-token":    random(14) + ".atlasv1." + random(67),
		"azure-storage-key":  "DefaultEndpointsProtocol=https;Account" + "Key=" + random(86) + "==",
		"stripe-key":         "sk_live_" + random(24),
		"npm-token":          "npm_" + random(36),
		"pypi-token":         "pypi-AgEIcHlwaS5vcmc" + random(60),
		"sendgrid-key":       "SG." + random(22) + "." + random(43),
		"digitalocean-token": "dop_v1_" + strings.Repeat("0a1b2c3d", 8),
		"databricks-token":   "dapi" + strings.Repeat("0a1b2c3d", 4),
		"hugging-face-token": "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
		"age-key":            "AGE-SECRET-KEY-1" + strings.ToUpper(random(58)),
	} {
		t.Run(rule, func(t *testing.T) {
			for name, content := range map[string]string{
				"a.yaml": "# found in a comment too: " + token, "b.tf": "locals {\n  a = \"" + token + "\"\n}\n", "c.sh": "curl -H 'X: " + token + "'", "d.json": `{"a": ["` + token + `"]}`,
			} {
				found, _ := scan.File(name, []byte(content))
				if len(found) != 1 || found[0].Rule != rule {
					t.Errorf("%s: found %v, want one of %s", name, found, rule)
					continue
				}
				if text := found[0].String(); strings.Contains(text, token[len(token)-8:]) || !strings.Contains(text, scan.Mask) || strings.Contains(text, "is  (") {
					t.Errorf("%s: says %q, want what it is, masked", name, text)
				}
			}
		})
	}
}

func TestWhatIsNoSecret(t *testing.T) {
	for name, content := range map[string]string{
		"an example of a document": "aws_access_key_id: AKIAIOSFODNN7EXAMPLE",
		"a token without content":  "token: ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
		"a reference to the Vault": "password: vault://kyuubi/database#password@3",
		"references of others":     "password: ref+awsssm://a/b\napi_key: op://vault/item/field\nclient_secret: ${CLIENT_SECRET}\ndb_password: $DB_PASSWORD",
		"a template":               "password: '{{ .Values.password }}'\nurl: postgres://app:{{ .password }}@db/app",
		"placeholders":             "password: changeme\napi_key: <your key>\nclient_secret: your-client-secret\npasswd: \"********\"",
		"empty and booleans":       "password: ''\ntoken: true\nsecret: null\nprivate_key: ~",
		"the name of a Secret":     "secret: kyuubi-database-credentials\nexistingSecret: db\nexistingPasswordSecret: hunter2-2-3\npasswordKey: root-password\nsecretName: a1b2c3d4e5",
		"a file":                   "password_file: /run/secrets/password\nprivate_key: /etc/ssl/key.pem\ntoken: ./token",
		"times and numbers":        "token_ttl: 20m\ntoken: 3600\nmax_tokens: 4096\nsecret: 30d",
		"a sentence":               "password: Enter the password of the administrator",
		"a digest of a password":   "password: $2y$10$abcdefghijklmnopqrstuv",
		"a public key":             "apiVersion: v1\nkind: Secret\nstringData:\n  tls.crt: |\n    -----BEGIN CERTIFICATE-----\n    MIIB\n  username: app\n  port: \"5432\"\n",
		"the schema of a kind":     "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {password: abcdefg}",
		"an alias":                 "a: &a {name: x}\nb: *a\n",
	} {
		t.Run(name, func(t *testing.T) {
			if found, unread := scan.File("a.yaml", []byte(content)); len(found) != 0 || unread != nil {
				t.Errorf("found %v and could not read %v, want nothing", found, unread)
			}
		})
	}
	const module = `
variable "token" {}
provider "vault" {
  token   = var.token
  address = "https://vault.example.com"
}
resource "a" "b" {
  password    = file("${path.module}/password")
  private_key = tls_private_key.a.private_key_pem
  secret      = lookup(var.all, "password", "x")
  password_policy = "at-least-12"
  api_key     = "${var.prefix}-key"
  url         = "postgres://app:${var.token}@db/app"
}
output "password" {
  value     = random_password.a.result
  sensitive = true
}`
	if found, unread := scan.File("a.tf", []byte(module)); len(found) != 0 || unread != nil {
		t.Errorf("found %v and could not read %v, want nothing", found, unread)
	}
}

func TestWhatIsScanned(t *testing.T) {
	token := "ghp_" + random(36)
	files := fstest.MapFS{}
	for _, name := range []string{
		"a.yaml", "deep/er/b.yml", "c.tf", "d.tfvars", ".env.production", "id_rsa", "Dockerfile", "e.md",
		"main.go", "picture.png", ".git/config.yaml", ".terraform/modules/m/main.tf", "node_modules/x/a.json", "old/a.yaml", "skip.yaml",
	} {
		files[name] = &fstest.MapFile{Data: []byte("# " + token + "\n")}
	}
	files["binary.yaml"] = &fstest.MapFile{Data: []byte("a: \x00\n")}
	files["large.yaml"] = &fstest.MapFile{Data: []byte(strings.Repeat("# line\n", 2<<20))}
	r, err := scan.Tree(t.Context(), files, "src", []string{"old/", "skip.*"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.File)
	}
	want := []string{"src/.env.production", "src/Dockerfile", "src/a.yaml", "src/c.tf", "src/d.tfvars", "src/deep/er/b.yml", "src/e.md", "src/id_rsa"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found in other files (-want +got):\n%s", diff)
	}
	if len(r.Unread) != 2 || r.Clean() {
		t.Errorf("not read: %v, want the binary and the large file, and no clean report", r.Unread)
	}
	if err := scan.CheckPatterns([]string{"["}); err == nil {
		t.Error("[ is taken for a pattern")
	}
}

// What comes without a name is known by its content.
func TestContentWithoutName(t *testing.T) {
	for content, kind := range map[string]scan.Kind{
		`{"version":4,"terraform_version":"1.10.0","lineage":"x","outputs":{"p":{"value":"abcdefg","sensitive":true}},"resources":[]}`: scan.State,
		"apiVersion: v1\nkind: Secret\nstringData: {a: bcdefg}\n":                                                                      scan.Secret,
		"variable \"password\" {\n  default = \"abcdefg\"\n}\n":                                                                        scan.Default,
		"export PASSWORD=abcdefg\n": scan.Text,
	} {
		var r scan.Report
		if err := r.Read(scan.Stdin, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) != 1 || r.Findings[0].Kind != kind {
			t.Errorf("%s: found %v, want one of the kind %s", content, r.Findings, kind)
		}
	}
}

func TestBaseline(t *testing.T) {
	read := func(content string) scan.Report {
		var r scan.Report
		if err := r.Read("a.yaml", strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := read("password: one-1\nother: {password: two-2}\n")
	text, err := json.Marshal(scan.BaselineOf(before))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "one-1") {
		t.Errorf("the baseline holds a value: %s", text)
	}
	known, err := scan.ParseBaseline(text)
	if err != nil {
		t.Fatal(err)
	}
	after := read("# moved\n\npassword: one-1\nthird: {password: three-3}\n").Without(known)
	if after.Known != 1 || len(after.Findings) != 1 || after.Findings[0].At != "third.password" || len(after.Stale) != 1 || after.Stale[0].At != "other.password" {
		t.Errorf("after the change the report is %+v, want the third password alone, and the second as stale", after)
	}
	if _, err := scan.ParseBaseline([]byte(`{"version":2}`)); err == nil {
		t.Error("a baseline of another version is read")
	}
}

// Deep nesting may not overflow the stack.
func TestDeepDocuments(t *testing.T) {
	for name, content := range map[string]string{
		"a.json": strings.Repeat("[", 1<<20), "a.yaml": strings.Repeat("[", 20_000), "a.tf": "a = " + strings.Repeat("[", 1<<20), "a.tf.json": strings.Repeat(`{"a":`, 1<<18),
	} {
		if _, unread := scan.File(name, []byte(content)); unread == nil || !unread.Scanned {
			t.Errorf("%s: %v, want a note that it was scanned line by line", name, unread)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"a.yaml", "a.json", "a.tf", "a.tf.json", "a.tfvars", "a.md", "a.tfstate", "-"} {
		f.Add(name, []byte("password: abcdefg\n"))
		f.Add(name, []byte(`{"terraform_version":"1","lineage":"x","resources":[{"instances":[{"attributes":{"a":[1]},"sensitive_attributes":[[{"value":"a"},{"value":9}]]}]}]}`))
		f.Add(name, []byte("```yaml\npassword: a\n```\n```\nx = <<A\npassword=abc\nA\n```\n"))
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		found, _ := scan.File(name, content)
		lines := 1 + strings.Count(string(content), "\n")
		for _, one := range found {
			if one.Line < 1 || one.Line > lines {
				t.Errorf("%s: a finding in line %d of %d: %s", name, one.Line, lines, one)
			}
		}
	})
}

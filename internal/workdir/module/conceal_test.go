package module

import (
	"regexp"
	"strings"
	"testing"
)

var tellingWord = regexp.MustCompile(`(?i)(password|secret|token|api_key|connection_string)`)

// No literal survives below a name that says what it holds, however it is written.
func TestConceal(t *testing.T) {
	const m = `"X"`
	for in, want := range map[string]string{
		`password = "hunter2"`:                                                 `password = ` + m,
		`secret_string = "hunter2"`:                                            `secret_string = ` + m,
		`secret_data = "hunter2"`:                                              `secret_data = ` + m,
		`connection_string = "hunter2"`:                                        `connection_string = ` + m,
		`master_password_wo = "hunter2"`:                                       `master_password_wo = ` + m,
		`db_password_value = "hunter2"`:                                        `db_password_value = ` + m,
		`password = "hunter2$"`:                                                `password = ` + m,
		`password = "hunter2${x}hunter2"`:                                      `password = ` + m,
		`password = trimspace("hunter2")`:                                      `password = trimspace(` + m + `)`,
		`password = 4711`:                                                      `password = ` + m,
		`password = "${x ? "hunter2" : y}"`:                                    `password = "${x ? ` + m + ` : y}"`,
		"password = <<EOT\nhunter2\nEOT\n":                                     "password = " + m + "\n",
		"password = <<-EOT\n  hunter2\n  EOT\n":                                "password = " + m + "\n",
		`secrets = ["hunter2", var.x]`:                                         `secrets = [` + m + `, var.x]`,
		`secrets = { a = "hunter2" }`:                                          `secrets = { a = ` + m + ` }`,
		`input = { api_key: "a\"hunter2" }`:                                    `input = { api_key: ` + m + ` }`,
		`input = { "db-token" = "hunter2" }`:                                   `input = { "db-token" = ` + m + ` }`,
		`x = jsonencode({ a = { password = "hunter2" } })`:                     `x = jsonencode({ a = { password = ` + m + ` } })`,
		`x = sensitive("hunter2")`:                                             `x = sensitive(` + m + `)`,
		"secret {\n  value = \"hunter2\"\n}\n":                                 "secret {\n  value = " + m + "\n}\n",
		"set_sensitive {\n  value = \"hunter2\"\n}\n":                          "set_sensitive {\n  value = " + m + "\n}\n",
		"variable \"p\" {\n  sensitive = true\n  default = \"hunter2\"\n}\n":   "variable \"p\" {\n  sensitive = true\n  default = " + m + "\n}\n",
		"variable \"p\" {\n  sensitive = true\n  default = {a=\"hunter2\"}\n}": "variable \"p\" {\n  sensitive = true\n  default = {a=" + m + "}\n}",
		"variable \"db_password\" {\n  default = \"hunter2\"\n}\n":             "variable \"db_password\" {\n  default = " + m + "\n}\n",
		"output \"p\" {\n  sensitive = true\n  value = \"hunter2\"\n}\n":       "output \"p\" {\n  sensitive = true\n  value = " + m + "\n}\n",
		"# password = \"hunter2\"\nx = 1\n":                                    "# X\nx = 1\n",
		"x = 1 /* token: hunter2 */\n":                                         "x = 1 /* X */\n",
		"set {\n  name = \"db.password\"\n  value = \"hunter2\"\n}\n":          "set {\n  name = \"db.password\"\n  value = " + m + "\n}\n",
		`env = [{ name = "DB_PASSWORD", value = "hunter2" }]`:                  `env = [{ name = "DB_PASSWORD", value = ` + m + ` }]`,
		`env = [{ value = "hunter2", key = "DB_PASSWORD" }]`:                   `env = [{ value = ` + m + `, key = "DB_PASSWORD" }]`,
		`password = "hunter2`:                                                  Unparsed,
		strings.Repeat("[", 2*maxDepth):                                        Unparsed,
	} {
		got, n := Conceal(in, "X", tellingWord.MatchString)
		if got != want || n != 1 {
			t.Errorf("Conceal(%.80s) = %s, %d; want %s and 1", in, got, n, want)
		}
	}
	for _, same := range []string{
		``, `password = var.password`, `password = "${var.password}"`, `password = ""`, `password = null`, `use_token = true`, `name = "token"`,
		`x = { name = "token" }`, `x = { name = "token", value = var.x, kind = "a" }`, `x = { name = "region", value = "eu" }`, "# reads the token\n", "variable \"p\" {\n  sensitive = false\n  default = \"a\"\n}\n", `resource "aws_secret" "token" {}`, `password = data.x["a"].b`,
	} {
		if got, n := Conceal(same, "X", tellingWord.MatchString); got != same || n != 0 {
			t.Errorf("Conceal(%s) = %s, %d; want it unchanged", same, got, n)
		}
	}
}

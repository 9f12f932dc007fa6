package module

import (
	"slices"
	"testing"
)

// Two spellings of one place are one place, and two places are two.
func TestCustomPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b         string
		inA, inB     string // workspaces; default if empty
		same, differ bool   // neither: the place is not known
	}{
		"a comment":                        {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", b: "# ours\n" + `backend "s3" {` + "\n  key    = \"k\" // here\n  bucket = \"b\"\n}", same: true},
		"credentials and regions":          {a: `backend "s3" {` + "\nbucket = \"b\"\nkey = \"k\"\nregion = \"eu-1\"\nprofile = \"x\"\n}", b: `backend "s3" {` + "\nbucket = \"b\"\nkey = \"k\"\nregion = var.region\n}", same: true},
		"two keys":                         {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"l\"\n}", differ: true},
		"spellings of an endpoint":         {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\nendpoint = \"https://MINIO:443/\"\n}", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\nendpoints = { s3 = \"https://minio\" }\n}", same: true},
		"two servers":                      {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\nendpoint = \"https://minio\"\n}", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", differ: true},
		"the endpoint of Amazon":           {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\nendpoint = \"https://s3.eu-west-1.amazonaws.com\"\n}", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", same: true},
		"a workspace, and its key":         {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", inA: "w", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"env:/w/k\"\n}", same: true},
		"the prefix of workspaces":         {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\nworkspace_key_prefix = \"p\"\n}", inA: "w", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", inB: "w", differ: true},
		"a prefix without effect":          {a: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\nworkspace_key_prefix = \"p\"\n}", b: "backend \"s3\" {\nbucket = \"b\"\nkey = \"k\"\n}", same: true},
		"a path":                           {a: `backend "local" { path = "/srv/x" }`, b: `backend "local" { path = "/srv/./y/../x" }`, same: true},
		"a path in each workdir":           {a: `backend "local" { path = "x" }`, b: `backend "local" { path = "x" }`},
		"slashes of a prefix":              {a: "backend \"gcs\" {\nbucket = \"b\"\nprefix = \"/p/\"\n}", b: "backend \"gcs\" {\nbucket = \"b\"\nprefix = \"p\"\n}", same: true},
		"an account in capitals":           {a: "backend \"azurerm\" {\nstorage_account_name = \"A\"\ncontainer_name = \"c\"\nkey = \"k\"\nresource_group_name = \"g\"\n}", b: "backend \"azurerm\" {\nstorage_account_name = \"a\"\ncontainer_name = \"c\"\nkey = \"k\"\n}", same: true},
		"an address of http":               {a: `backend "http" { address = "HTTP://h:80/a/../s?x=1" }`, b: `backend "http" { address = "http://u:p@h/s?x=1" }`, same: true},
		"a database":                       {a: `backend "pg" { conn_str = "postgres://u:p@DB/tf?sslmode=disable" }`, b: "backend \"pg\" {\nconn_str = \"host=db port=5432 dbname=tf user=v\"\nschema_name = \"terraform_remote_state\"\n}", same: true},
		"two schemas of a database":        {a: `backend "pg" { conn_str = "postgres://db/tf" }`, b: "backend \"pg\" {\nconn_str = \"postgres://db/tf\"\nschema_name = \"x\"\n}", differ: true},
		"a path of consul":                 {a: `backend "consul" { path = "p" }`, b: "backend \"consul\" {\naddress = \"127.0.0.1:8500\"\npath = \"p\"\nscheme = \"http\"\n}", same: true},
		"a Secret":                         {a: "backend \"kubernetes\" {\nsecret_suffix = \"s\"\nconfig_path = \"/k/./c\"\n}", b: "backend \"kubernetes\" {\nsecret_suffix = \"s\"\nconfig_path = \"/k/c\"\nnamespace = \"default\"\n}", same: true},
		"a cluster of the environment":     {a: `backend "kubernetes" { secret_suffix = "s" }`, b: `backend "kubernetes" { secret_suffix = "s" }`},
		"a workspace of a cloud":           {a: "backend \"remote\" {\norganization = \"o\"\nworkspaces { name = \"a-w\" }\n}", b: "backend \"remote\" {\nhostname = \"APP.terraform.io\"\norganization = \"o\"\nworkspaces { prefix = \"a-\" }\n}", inB: "w", same: true},
		"arguments in the environment":     {a: `backend "http" {}`, b: `backend "http" {}`},
		"an argument that is no literal":   {a: `backend "local" { path = "${path.root}/x" }`, b: `backend "local" { path = "${path.root}/x" }`},
		"a text that is no configuration":  {a: `backend "s3" {`, b: `backend "s3" {`},
		"a backend that is not known here": {a: "backend \"new\" {\nx = 1\npassword = \"p\"\n}", b: "backend \"new\" {\npassword = \"q\" # ours\nx = 1\n}", same: true},
		"two of a backend not known here":  {a: `backend "new" { x = 1 }`, b: `backend "new" { x = 2 }`, differ: true},
	} {
		workspace := func(s string) string {
			if s == "" {
				return "default"
			}
			return s
		}
		a, b := CustomPlace(tt.a, workspace(tt.inA)), CustomPlace(tt.b, workspace(tt.inB))
		known := a.Parts != nil && b.Parts != nil
		if known != (tt.same || tt.differ) || known && slices.Equal(a.Parts, b.Parts) != tt.same {
			t.Errorf("%s: %q and %q, want the same: %v, two: %v", name, a, b, tt.same, tt.differ)
		}
	}
}

func TestWhyAPlaceIsNotKnown(t *testing.T) {
	for custom, want := range map[string]string{
		`backend "local" { path = "${path.root}/x" }`: `its argument "path" is not a literal value`,
		`backend "s3" {`:                      "its configuration cannot be parsed",
		`backend "http" {}`:                   "its arguments are in the environment of the engine",
		`backend "local" { path = "x" }`:      "",
		`backend "local" { path = "/x" }`:     "",
		`backend "kubernetes" { host = foo }`: `its argument "host" is not a literal value`,
	} {
		if got := CustomPlace(custom, "default").Why; got != want {
			t.Errorf("%s: %q, want %q", custom, got, want)
		}
	}
}

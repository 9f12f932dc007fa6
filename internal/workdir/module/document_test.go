package module

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestDocumentOf(t *testing.T) {
	files := map[string][]byte{
		"main.tf": []byte(`
terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source                = "hashicorp/aws"
      version               = "~> 5.0"
      configuration_aliases = [aws.peer, aws.dns]
    }
    random = "~> 3.0"
  }
}
variable "cidr" {
  type        = string
  description = "The range of the network."
  validation {
    condition     = can(cidrhost(var.cidr, 0))
    error_message = "It has to be a range, as 10.0.0.0/16."
  }
}
variable "tags" {
  type = map(
    string
  )
  default  = { team = "net" }
  nullable = false
}
variable "password" {
  type      = string
  sensitive = true
  default   = "hunter2"
}
variable "any" {}
output "id" {
  value       = aws_vpc.this.id
  description = <<-EOT
    The network.
  EOT
}
output "secret" {
  value     = var.password
  sensitive = true
}
resource "aws_vpc" "this" {}
data "aws_region" "now" {}
ephemeral "random_password" "one" {}
module "subnets" {
  source = "./modules/subnet"
}
module "dns" {
  source  = "registry.example.com/net/dns/aws"
  version = ">= 1.2, < 2.0"
}
`),
		"more.tf.json":     []byte(`{"variable": {"count": {"type": "number", "default": 3}}, "output": {"n": {"value": "${var.count}"}}}`),
		"both.tf":          []byte(`variable "seen_by_terraform_alone" {}`),
		"both.tofu":        []byte(`variable "seen_by_tofu" { default = null }`),
		"main_override.tf": []byte(`variable "cidr" { default = "10.0.0.0/16" }`),
		"terraform.tfvars": []byte(`this is = no configuration`),
	}
	want := Document{
		Inputs: []Input{
			{Name: "any", Required: true},
			{Name: "cidr", Type: "string", Description: "The range of the network.", Default: `"10.0.0.0/16"`, Validations: []Validation{{"can(cidrhost(var.cidr, 0))", "It has to be a range, as 10.0.0.0/16."}}},
			{Name: "count", Type: "number", Default: "3"},
			{Name: "password", Type: "string", Sensitive: true},
			{Name: "seen_by_tofu", Default: "null"},
			{Name: "tags", Type: "map(\n  string\n)", Default: `{ team = "net" }`, NotNull: true},
		},
		Outputs: []Output{{Name: "id", Description: "The network."}, {Name: "n"}, {Name: "secret", Sensitive: true}},
		Resources: []Resource{
			{"resource", "aws_vpc", "this"}, {"ephemeral", "random_password", "one"}, {"data", "aws_region", "now"},
		},
		Calls:     []Call{{Name: "dns", Source: "registry.example.com/net/dns/aws", Version: ">= 1.2, < 2.0"}, {Name: "subnets", Source: "./modules/subnet"}},
		Providers: []Requirement{{Name: "aws", Source: "hashicorp/aws", Version: "~> 5.0", Aliases: []string{"aws.peer", "aws.dns"}}, {Name: "random", Version: "~> 3.0"}},
		Engine:    []string{">= 1.9"},
	}
	got, err := DocumentOf(files)
	if diff := cmp.Diff(got, want); diff != "" || err != nil {
		t.Errorf("DocumentOf (-got +want), %v:\n%s", err, diff)
	}
}

// A file that cannot be read does not hide the others, and the error says where it is wrong.
func TestDocumentOfWhatCannotBeParsed(t *testing.T) {
	for name, tt := range map[string]struct{ file, content, says string }{
		"HCL":                  {"bad.tf", "variable \"x\" {\n  type = \n}", "bad.tf:2"},
		"JSON":                 {"bad.tf.json", `{"variable": `, "bad.tf.json"},
		"nested too deeply":    {"bad.tf", "locals { x = " + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + " }", "nested"},
		"a name too few":       {"bad.tf", "resource \"only_a_type\" {}\nvariable {}", "bad.tf"},
		"what is no text":      {"bad.tf", "\x00\xff\xfe", "bad.tf"},
		"JSON of another type": {"bad.tf.json", `{"variable": [1, 2, "three"]}`, "bad.tf.json"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DocumentOf(map[string][]byte{tt.file: []byte(tt.content), "good.tf": []byte(`variable "good" {}`)})
			if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v, want an Invalid one about %q", err, tt.says)
			}
			if len(got.Inputs) == 0 || got.Inputs[0].Name != "good" {
				t.Errorf("the inputs are %+v, want the one of the good file", got.Inputs)
			}
		})
	}
}

// One text cannot make a page or an answer large.
func TestTextsOfADocumentAreBounded(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	got, err := DocumentOf(map[string][]byte{"main.tf": []byte("variable \"x\" {\n  description = \"" + long + "\"\n  default = \"" + long + "\"\n}")})
	if err != nil || len(got.Inputs) != 1 {
		t.Fatalf("DocumentOf = %+v, %v", got, err)
	}
	if in := got.Inputs[0]; len(in.Description) > mostText || len(in.Default) > mostText {
		t.Errorf("the texts have %d and %d bytes, and %d are allowed", len(in.Description), len(in.Default), mostText)
	}
}

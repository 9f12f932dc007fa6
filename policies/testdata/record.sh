#!/bin/sh
# Records plans of a real engine, for the tests of this package:
#
#	testdata/record.sh PATH-TO-TOFU PATH-TO-PROVIDER-MIRROR
#
# The mirror has what stands in for hashicorp/aws: "make providers-guide" puts it into
# bin/mirror-guide.
set -eu
tofu=$(realpath "$1")
mirror=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export TF_CLI_CONFIG_FILE="$dir/cli.tfrc" CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_ENDPOINT_URL="file://$dir/cloud.json"
printf 'provider_installation {\n  filesystem_mirror {\n    path = "%s"\n  }\n}\n' "$mirror" >"$TF_CLI_CONFIG_FILE"

# plan NAME BEFORE AFTER [MORE]: applies one configuration, and records the plan of another.
plan() {
	rm -rf "$dir/work" && mkdir "$dir/work" && cd "$dir/work"
	if [ -n "$2" ]; then
		printf '%s\n' "$2" >main.tf
		"$tofu" init -no-color >/dev/null
		"$tofu" apply -auto-approve -no-color >/dev/null
	fi
	printf '%s\n' "$3" >main.tf
	mkdir -p child
	printf '%s\n' "${4:-}" >child/main.tf
	"$tofu" init -no-color >/dev/null
	"$tofu" plan -out p -no-color >/dev/null
	"$tofu" show -json p >"$here/$1.json"
}

a='resource "terraform_data" "a" { input = "one" }'
plan create "" "$a"
plan update "$a" 'resource "terraform_data" "a" { input = "two" }'
plan no-changes "$a" "$a"
plan outputs-only "$a" "$a
output \"now\" { value = \"there\" }"
plan read "" 'resource "terraform_data" "late" {}
data "terraform_remote_state" "it" {
  backend    = "local"
  config     = { path = "none" }
  defaults   = {}
  depends_on = [terraform_data.late]
}'
plan move "$a" 'resource "terraform_data" "b" { input = "one" }
moved {
  from = terraform_data.a
  to   = terraform_data.b
}'
plan import "" 'resource "terraform_data" "a" {}
import {
  to = terraform_data.a
  id = "11111111-2222-3333-4444-555555555555"
}'
plan delete "$a" 'locals {}'
plan replace 'resource "terraform_data" "a" { triggers_replace = 1 }' 'resource "terraform_data" "a" { triggers_replace = 2 }'
plan replace-before 'resource "terraform_data" "a" { triggers_replace = 1 }' 'resource "terraform_data" "a" {
  triggers_replace = 2
  lifecycle { create_before_destroy = true }
}'
plan forget "$a" 'removed {
  from = terraform_data.a
  lifecycle { destroy = false }
}'
plan programs "" 'resource "terraform_data" "runs" {
  provisioner "local-exec" { command = "true" }
}
module "child" { source = "./child" }' 'resource "terraform_data" "within" {
  provisioner "local-exec" { command = "true" }
}'
cat >"$dir/other.tfstate" <<'S'
{"version": 4, "terraform_version": "1.10.0", "serial": 1, "lineage": "5d1a4ee2-5f1b-4a57-9d3b-6f9e2a7c3b10", "outputs": {}, "resources": []}
S
plan remote-state "" "data \"terraform_remote_state\" \"other\" {
  backend = \"local\"
  config  = { path = \"$dir/other.tfstate\" }
}"

aws='terraform {
  required_providers { aws = { source = "hashicorp/aws" } }
}
provider "aws" { region = "eu-central-1" }
'
plan aws "" "$aws"'
variable "password" {
  default   = "canary-of-a-password"
  sensitive = true
}
resource "aws_iam_user" "direct" {
  name = "direct"
  tags = { owner = "team-a" }
}
resource "aws_iam_access_key" "direct" { user = "direct" }
resource "aws_s3_bucket" "tagged" {
  bucket = "tagged"
  tags   = { owner = "team-a" }
}
resource "aws_s3_bucket" "untagged" { bucket = "untagged" }
resource "aws_s3_bucket_public_access_block" "open" {
  bucket                  = "tagged"
  block_public_acls       = true
  block_public_policy     = false
  ignore_public_acls      = true
  restrict_public_buckets = true
}
resource "aws_db_instance" "main" {
  identifier = "main"
  engine     = "postgres"
  password   = var.password
  tags       = { owner = "team-a" }
}
module "iam" { source = "./child" }' 'terraform {
  required_providers { aws = { source = "hashicorp/aws" } }
}
resource "aws_iam_user" "it" {
  name = "it"
  tags = { owner = "team-a" }
}'
plan aws-protected "$aws"'resource "aws_db_instance" "main" {
  identifier     = "main"
  instance_class = "db.t3.micro"
}' "$aws"'resource "aws_db_instance" "main" {
  identifier     = "main"
  instance_class = "db.t3.large"
}'

# A resource that was changed outside, and that the configuration has as it is now.
rm -rf "$dir/work" && mkdir "$dir/work" && cd "$dir/work"
printf '%s\n' "$aws"'resource "aws_s3_bucket" "a" {
  bucket = "a"
  tags   = { owner = "team-a" }
}' >main.tf
"$tofu" init -no-color >/dev/null
"$tofu" apply -auto-approve -no-color >/dev/null
sed -i 's/team-a/team-b/' "$dir/cloud.json"
"$tofu" plan -refresh-only -out p -no-color >/dev/null
"$tofu" show -json p >"$here/drift.json"

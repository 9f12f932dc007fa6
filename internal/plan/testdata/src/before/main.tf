variable "token" {
  type      = string
  sensitive = true
  default   = "correct-horse-battery"
}

variable "zone" {
  type    = string
  default = "north"
}

resource "terraform_data" "gone" {
  input = { note = "nobody needs this" }
}

resource "terraform_data" "replaced" {
  triggers_replace = [1, "a"]
  input            = "same"
}

resource "terraform_data" "updated" {
  input = {
    name    = "old name"
    size    = 12345678901234567890
    tags    = ["a", "b", "c"]
    nested  = { deep = { on = true, left = "alone" } }
    secret  = var.token
    policy  = jsonencode({ Statement = [{ Effect = "Allow", Action = "read" }] })
    removed = "soon"
  }
}

resource "terraform_data" "old_name" {
  input = "moved only"
}

resource "terraform_data" "forgotten" {
  input = "stays in the world"
}

resource "terraform_data" "each" {
  for_each = toset(["eu-west", "us \"east\""])
  input    = each.key
}

module "child" {
  source = "./child"
}

output "size" {
  value = terraform_data.updated.output.size
}

output "token" {
  value     = var.token
  sensitive = true
}

output "dropped" {
  value = ["x", "y"]
}

variable "token" {
  type      = string
  sensitive = true
  default   = "staple-and-elephant"
}

variable "zone" {
  type    = string
  default = "south"
}

resource "terraform_data" "created" {
  input = {
    zone = var.zone
    from = terraform_data.replaced.id
    key  = var.token
  }
  provisioner "local-exec" {
    command = "sleep 11; echo created"
  }
}

resource "terraform_data" "replaced" {
  triggers_replace = [2, "a"]
  input            = "same"
  lifecycle {
    create_before_destroy = true
  }
}

resource "terraform_data" "updated" {
  input = {
    name   = "new \u001b[31mname"
    size   = 12345678901234567891
    tags   = ["a", "x", "b", "c"]
    nested = { deep = { on = false, left = "alone" } }
    secret = var.token
    policy = jsonencode({ Statement = [{ Effect = "Deny", Action = "read" }] })
    added  = "now"
  }
}

resource "terraform_data" "new_name" {
  input = "moved only"
}

moved {
  from = terraform_data.old_name
  to   = terraform_data.new_name
}

removed {
  from = terraform_data.forgotten
  lifecycle {
    destroy = false
  }
}

import {
  to = terraform_data.adopted
  id = "11111111-2222-3333-4444-555555555555"
}

resource "terraform_data" "adopted" {
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

output "made" {
  value = terraform_data.created.id
}

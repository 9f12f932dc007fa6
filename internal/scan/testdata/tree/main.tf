terraform {
  backend "s3" {
    bucket     = "states"
    secret_key = "q8ZrT3mKx0LwPz5vBn7y"
  }
}

provider "vault" {
  token = "root"
}

provider "postgresql" {
  password = var.database_password
}

variable "database_password" {
  type    = string
  default = "marble-finch-9"
}

variable "pin" {
  sensitive = true
  default   = "a-pin"
}

variable "empty_password" {
  sensitive = true
  default   = ""
}

resource "aws_db_instance" "main" {
  identifier = "main"
  username   = "admin"
  password   = "marble-finch-9"
  tags       = { secret_name = "database", token_ttl = "20m" }
}

resource "helm_release" "grafana" {
  set_sensitive {
    name  = "grafana.adminPassword"
    value = "marble-finch-9"
  }
  values = [jsonencode({ auth = { rootPassword = "marble-finch-9", existingSecret = "grafana" } })]
}

resource "random_password" "db_password" {
  length = 24
}

resource "kubernetes_secret" "copy" {
  data = {
    password = random_password.db_password.result
    other    = var.database_password != "" ? var.database_password : "none"
  }
}

resource "local_file" "settings" {
  content = <<-EOT
    user=app
    password=marble-finch-9
    other=${var.database_password}
  EOT
}

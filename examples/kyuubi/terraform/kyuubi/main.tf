# What Kyuubi is started with, from the secrets that its ServiceAccount reads in OpenBao.

variable "environment" {
  description = "Environment name"
  type        = string
  default     = "dev"
}

locals {
  config = {
    dev = {
      replicas  = 1
      resources = "small"
    }
    prod = {
      replicas  = 3
      resources = "large"
    }
  }
}

variable "database_password" {
  type      = string
  sensitive = true
}

variable "executor_memory" {
  type = string
}

# A new password makes a new version of the configuration.
resource "terraform_data" "configuration" {
  input            = local.config[var.environment]
  triggers_replace = [sha256(var.database_password)]
}

output "replicas" {
  value = terraform_data.configuration.output.replicas
}

output "kyuubi_defaults" {
  sensitive = true
  value     = <<-EOT
    kyuubi.metadata.store.jdbc.url=jdbc:mariadb://mariadb:3306/kyuubi
    kyuubi.metadata.store.jdbc.password=${var.database_password}
    spark.executor.memory=${var.executor_memory}
  EOT
}

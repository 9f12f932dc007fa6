# What OpenBao holds for Kyuubi, and who may read it. The mount and the secret "database" are
# those of the guide, letter by letter.

terraform {
  required_providers {
    vault = {
      source  = "hashicorp/vault"
      version = "~> 5.0"
    }
  }
}

# The address and the token of the run come from its identity. The role is bound to this stack.
provider "vault" {
  auth_login_jwt {
    role = "platform"
  }
}

variable "database_password" {
  description = "password of MariaDB"
  type        = string
  sensitive   = true
}

variable "enable_monitoring" {
  description = "whether there is a secret for Grafana"
  type        = bool
  default     = false
}

variable "kubernetes_host" {
  description = "address of the Kubernetes API, as OpenBao reaches it"
  type        = string
}

variable "kubernetes_ca_cert" {
  description = "certificate authority of the Kubernetes API, in PEM"
  type        = string
}

resource "vault_mount" "kyuubi" {
  path        = "kyuubi"
  type        = "kv"
  options     = { version = "2" }
  description = "secrets of the data platform"
}

resource "vault_kv_secret_v2" "database" {
  mount = vault_mount.kyuubi.path
  name  = "database"
  data_json = jsonencode({
    mariadb_password = var.database_password
  })
}

resource "vault_kv_secret_v2" "spark" {
  mount = vault_mount.kyuubi.path
  name  = "spark"
  data_json = jsonencode({
    executor_memory = "12g"
  })
}

resource "vault_kv_secret_v2" "kyuubi_server" {
  mount = vault_mount.kyuubi.path
  name  = "kyuubi-server"
  data_json = jsonencode({
    authentication = "NONE"
  })
}

resource "vault_kv_secret_v2" "aws" {
  mount = vault_mount.kyuubi.path
  name  = "aws"
  data_json = jsonencode({
    endpoint = "http://minio:9000"
  })
}

resource "vault_kv_secret_v2" "monitoring" {
  count = var.enable_monitoring ? 1 : 0
  mount = vault_mount.kyuubi.path
  name  = "monitoring"
  data_json = jsonencode({
    grafana_user = "admin"
  })
}

resource "vault_policy" "kyuubi" {
  name   = "kyuubi-policy"
  policy = <<-EOT
    path "kyuubi/data/*" {
      capabilities = ["read"]
    }
  EOT
}

resource "vault_auth_backend" "kubernetes" {
  type = "kubernetes"
}

# Without a token of its own OpenBao asks the API with the token of who signs in. So there is
# none to keep.
resource "vault_kubernetes_auth_backend_config" "kubernetes" {
  backend              = vault_auth_backend.kubernetes.path
  kubernetes_host      = var.kubernetes_host
  kubernetes_ca_cert   = var.kubernetes_ca_cert
  disable_local_ca_jwt = true
}

resource "vault_kubernetes_auth_backend_role" "kyuubi" {
  backend                          = vault_auth_backend.kubernetes.path
  role_name                        = "kyuubi-role"
  bound_service_account_names      = ["kyuubi-sa"]
  bound_service_account_namespaces = ["kyuubi"]
  token_policies                   = [vault_policy.kyuubi.name]
  token_ttl                        = 1200
}

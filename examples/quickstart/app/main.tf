terraform {
  required_providers {
    local = {
      source  = "hashicorp/local"
      version = "~> 1.4"
    }
  }
}

variable "values" {
  description = "What the network stack output."
  type = object({
    range   = string
    subnets = list(string)
  })
}

variable "estate" {
  description = "Directory that stands in for a cloud."
  type        = string
}

variable "replicas" {
  type = number
}

# One file for each replica: a resource that you can edit to see drift.
resource "local_file" "replica" {
  count    = var.replicas
  filename = "${var.estate}/replica-${count.index}.txt"
  content  = "address ${cidrhost(var.values.subnets[count.index], 10)} in ${var.values.range}\n"
}

output "addresses" {
  value = [for i in range(var.replicas) : cidrhost(var.values.subnets[i], 10)]
}

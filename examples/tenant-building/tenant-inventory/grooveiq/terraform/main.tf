# The path of the module is relative to this directory, which is one of several in the inventory.
module "grooveiq_api" {
  source = "../../../modules/proxmox-vm"

  name        = "api-vm01"
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 2
  memory      = 4096
  disk        = "32G"
  network = {
    vlan_id = 100 # grooveiq VLAN
    ip      = "10.100.0.10"
    gateway = "10.100.0.1"
  }
}

variable "domain" {
  description = "zone of the tenant, from group_vars"
  type        = string
}

terraform {
  required_providers {
    dns = {
      source = "hashicorp/dns"
    }
  }
}

resource "dns_a_record_set" "api" {
  zone      = "${var.domain}."
  name      = module.grooveiq_api.name
  addresses = [module.grooveiq_api.address]
  ttl       = 300
}

output "hosts" {
  description = "hosts for inventories and steps"
  value       = module.grooveiq_api.hosts
}

# A VM whose MAC address has to be written: without it no plan is made. The playbook compares it with
# hosts.yml after the apply.
module "ledger" {
  source = "../../../modules/proxmox-vm"

  name        = "ledger-vm01"
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 4
  memory      = 8192
  disk        = "64G"
  mac_policy  = "require"
  mac         = "2E:59:DF:9E:D3:C7"
  network = {
    vlan_id = 102
    ip      = "10.102.0.10"
    gateway = "10.102.0.1"
    subnet  = "10.102.0.0/24"
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

resource "dns_a_record_set" "ledger" {
  zone      = "${var.domain}."
  name      = module.ledger.name
  addresses = [module.ledger.address]
  ttl       = 300
}

output "hosts" {
  description = "hosts for inventories and steps"
  value       = module.ledger.hosts
}

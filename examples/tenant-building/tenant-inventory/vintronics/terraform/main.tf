# Two VMs, with addresses by DHCP. The addresses are those of reservations, which the MAC
# addresses make possible.
module "shop" {
  source   = "../../../modules/proxmox-vm"
  for_each = { shop-vm01 = "10.101.0.10", shop-vm02 = "10.101.0.11" }

  name        = each.key
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 1
  memory      = 2048
  disk        = "20G"
  network = {
    vlan_id = 101
    ip      = each.value
    dhcp    = true
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

resource "dns_a_record_set" "shop" {
  for_each  = module.shop
  zone      = "${var.domain}."
  name      = each.key
  addresses = [each.value.address]
  ttl       = 300
}

output "hosts" {
  description = "hosts for inventories and steps"
  value       = flatten([for vm in module.shop : vm.hosts])
}

output "dhcp_reservations" {
  description = "reservations that the DHCP server has to have"
  value       = [for vm in module.shop : vm.dhcp_reservation]
}

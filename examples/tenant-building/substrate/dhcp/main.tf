# What the DHCP server reserves for a tenant: an address for each host of its inventory that has a
# MAC address of its own. The network team owns this module and the credential of the router.
terraform {
  required_providers {
    opnsense = {
      source = "browningluke/opnsense"
    }
  }
}

variable "tenant" {
  description = "name of the tenant, as in net/dhcp.yaml"
  type        = string
}

variable "hosts" {
  description = "hosts of its inventory, in JSON: a list of objects with name, address and mac"
  type        = string
}

locals {
  scopes   = yamldecode(file("${path.module}/../net/dhcp.yaml")).scopes
  subnets  = { for s in local.scopes : s.tenant => s.subnet }
  reserved = { for h in jsondecode(var.hosts) : h.name => h if try(h.mac, "") != "" && try(h.address, "") != "" }
}

resource "opnsense_kea_reservation" "host" {
  for_each = local.reserved

  subnet_id   = local.subnets[var.tenant]
  ip_address  = each.value.address
  mac_address = each.value.mac
  hostname    = each.key
  description = "tenant ${var.tenant}"
}

output "inventory" {
  description = "digest of the hosts that this is made of: machines wait until it is that of theirs"
  value       = sha256(var.hosts)
  depends_on  = [opnsense_kea_reservation.host]
}

output "reservations" {
  description = "address and MAC address by the name of the host"
  value       = { for name, r in opnsense_kea_reservation.host : name => { ip = r.ip_address, mac = r.mac_address } }
}

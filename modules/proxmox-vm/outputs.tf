output "vm_id" {
  description = "number of the VM in Proxmox VE"
  value       = proxmox_virtual_environment_vm.this.vm_id
}

output "name" {
  description = "name of the VM"
  value       = proxmox_virtual_environment_vm.this.name
}

locals {
  told    = [for a in flatten(proxmox_virtual_environment_vm.this.ipv4_addresses) : a if !startswith(a, "127.")]
  address = !var.network.dhcp || local.mac != null && var.network.ip != null ? var.network.ip : try(local.told[0], "")
}

output "address" {
  description = "IPv4 address of the host; empty if only the guest agent could tell it, and has not"
  value       = local.address
}

output "mac" {
  description = "MAC address of net0"
  value       = proxmox_virtual_environment_vm.this.network_device[0].mac_address
}

output "hosts" {
  description = "the host as inventories and steps take it"
  value = [{
    name    = proxmox_virtual_environment_vm.this.name
    address = local.address
    user    = local.ssh_user
    groups  = local.groups
    mac     = proxmox_virtual_environment_vm.this.network_device[0].mac_address
    vlan    = var.network.vlan_id
  }]
}

output "dhcp_reservation" {
  description = "reservation that the DHCP server of the VLAN has to have; null with an automatic MAC address"
  value = local.mac == null ? null : {
    hostname = var.name
    mac      = local.mac
    ip       = var.network.ip
    vlan     = var.network.vlan_id
  }
}

output "forced" {
  description = "why the requirements on the template were not checked; empty if they were"
  value       = local.forced
}

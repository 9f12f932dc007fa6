# A VM of one block, and what becomes of it.
variables {
  name        = "api-vm01"
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 2
  memory      = 4096
  disk        = "32G"
  network = {
    vlan_id = 100
    ip      = "10.100.0.10"
    gateway = "10.100.0.1"
  }
}

run "plan" {
  command = plan
  assert {
    condition     = proxmox_virtual_environment_vm.this.initialization[0].ip_config[0].ipv4[0].address == "10.100.0.10/24"
    error_message = "without a prefix length it is /24"
  }
  assert {
    condition     = proxmox_virtual_environment_vm.this.tags == tolist(["mac-auto"]) && output.dhcp_reservation == null
    error_message = "the MAC address is drawn if nothing is set"
  }
}

run "apply" {
  assert {
    condition     = can(regex("^BC:24:11(:[0-9A-F]{2}){3}$", output.mac))
    error_message = "Proxmox VE has drawn a MAC address"
  }
  assert {
    condition     = jsonencode(output.hosts) == jsonencode([{ name = "api-vm01", address = "10.100.0.10", user = "ansible", groups = [], mac = output.mac, vlan = 100 }])
    error_message = "the host is told as inventories take it"
  }
}

run "again" {
  command = plan
  assert {
    condition     = startswith(proxmox_virtual_environment_vm.this.network_device[0].mac_address, "BC:24:11:")
    error_message = "a MAC address that was drawn is no difference"
  }
}

run "prefix" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.1.10"
      gateway = "10.100.0.1"
      prefix  = 23
      subnet  = "10.100.0.0/23"
    }
  }
  assert {
    condition     = proxmox_virtual_environment_vm.this.initialization[0].ip_config[0].ipv4[0].address == "10.100.1.10/23"
    error_message = "the prefix length is the one that was set"
  }
}

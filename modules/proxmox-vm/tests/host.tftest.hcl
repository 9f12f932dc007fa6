# How the host of a VM gets its addresses, keys and names.
variables {
  name        = "api-vm01"
  tenant      = "grooveiq"
  pool        = "grooveiq"
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 1
  memory      = 512
  disk        = "10G"
  groups      = ["web"]
  tags        = ["stage-test"]
  ssh_user    = "ops"
  ssh_keys    = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOPS ops@example.com"]
  dns         = { servers = ["10.100.0.2", "10.100.0.3"], domain = "grooveiq.example" }
  network = {
    vlan_id = 100
    dhcp    = true
  }
}

run "linked" {
  command = plan
  variables {
    name       = "api-vm02"
    full_clone = false
    user_data  = "local:snippets/api.yaml"
  }
  assert {
    condition     = proxmox_virtual_environment_vm.this.clone[0].datastore_id == null && length(proxmox_virtual_environment_vm.this.initialization[0].user_account) == 0
    error_message = "a linked clone names no storage, and user data take the place of keys"
  }
}

# The guest agent tells what DHCP gave.
run "dhcp" {
  assert {
    condition     = can(regex("^10\\.100\\.0\\.", output.address))
    error_message = "the address is ${output.address}"
  }
  assert {
    condition     = jsonencode(output.hosts[0].groups) == jsonencode(["web"]) && output.hosts[0].user == "ops"
    error_message = "the host has its groups and its user"
  }
  assert {
    condition     = proxmox_virtual_environment_vm.this.tags == tolist(["grooveiq", "mac-auto", "stage-test"])
    error_message = "the VM has its tags"
  }
}

# With a reservation it is known before.
run "reserved" {
  command = plan
  variables {
    mac_policy = "deterministic"
    network = {
      vlan_id = 100
      ip      = "10.100.0.20"
      dhcp    = true
    }
  }
  expect_failures = [check.mac_policy]
  assert {
    condition     = output.address == "10.100.0.20" && output.dhcp_reservation.ip == "10.100.0.20"
    error_message = "the address is the one of the reservation"
  }
}

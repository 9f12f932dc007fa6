variables {
  name        = "api-vm01"
  tenant      = "grooveiq"
  pool        = "grooveiq"
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 1
  memory      = 512
  disk        = "10G"
  network = {
    vlan_id = 100
    ip      = "10.100.0.10"
    gateway = "10.100.0.1"
  }
}

run "auto" {
  assert {
    condition     = startswith(output.mac, "BC:24:11:")
    error_message = "Proxmox VE draws it"
  }
}

# The same VM, and a warning.
run "deterministic" {
  variables {
    mac_policy = "deterministic"
  }
  expect_failures = [check.mac_policy]
  # The first digits of the SHA-256 of "terrier/proxmox-vm/v1\ngrooveiq/api-vm01".
  assert {
    condition     = output.mac == "B6:22:CB:E8:59:91" && jsonencode(output.dhcp_reservation) == jsonencode({ hostname = "api-vm01", mac = "B6:22:CB:E8:59:91", ip = "10.100.0.10", vlan = 100 })
    error_message = "the documented hash is ${output.mac}"
  }
  assert {
    condition     = output.hosts[0].mac == output.dhcp_reservation.mac
    error_message = "inventory and reservation agree"
  }
}

# No warning any more.
run "settled" {
  command = plan
  variables {
    mac_policy = "deterministic"
  }
  assert {
    condition     = output.mac == "B6:22:CB:E8:59:91"
    error_message = "it stays"
  }
}

run "another_name" {
  command = plan
  variables {
    name       = "api-vm02"
    mac_policy = "deterministic"
  }
  assert {
    condition     = output.mac != "B6:22:CB:E8:59:91" && can(regex("^[0-9A-F][26AE]:", output.mac))
    error_message = "another name has another locally administered address"
  }
}

run "written" {
  command = plan
  variables {
    mac_policy = "require"
    mac        = "02:00:5e:10:00:01"
  }
  assert {
    condition     = output.mac == "02:00:5E:10:00:01" && output.dhcp_reservation.mac == output.mac
    error_message = "what is written counts"
  }
}

run "not_written" {
  command = plan
  variables {
    mac_policy = "require"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "written_with_auto" {
  command = plan
  variables {
    mac = "02:00:5E:10:00:01"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "no_tenant" {
  command = plan
  variables {
    tenant     = null
    mac_policy = "deterministic"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "multicast" {
  command = plan
  variables {
    mac_policy = "deterministic"
    mac        = "03:00:5E:10:00:01"
  }
  expect_failures = [var.mac]
}

run "global" {
  command = plan
  variables {
    mac_policy = "deterministic"
    mac        = "00:50:56:10:00:01"
  }
  expect_failures = [var.mac]
}

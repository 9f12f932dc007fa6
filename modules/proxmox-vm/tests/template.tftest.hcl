# What a template declares is checked before anything is planned. The platform of the test has
# templates that lack one thing each.
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

run "no_cloud_init" {
  command = plan
  variables {
    template = "no-cloud-init"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "no_ssh_keys" {
  command = plan
  variables {
    template = "no-ssh-keys"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "no_python3" {
  command = plan
  variables {
    template = "no-python3"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "no_static_address" {
  command = plan
  variables {
    template = "no-static-ip"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "no_dhcp" {
  command = plan
  variables {
    template = "no-dhcp"
    network = {
      vlan_id = 100
      dhcp    = true
    }
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "no_such_template" {
  command = plan
  variables {
    template = "debian-99-template"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "a_template_of_another_node" {
  command = plan
  variables {
    template    = "fedora-43-template"
    target_node = "pve-mgmt"
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

run "a_node_that_is_not_allowed" {
  command = plan
  variables {
    allowed_nodes = ["pve-other"]
  }
  expect_failures = [proxmox_virtual_environment_vm.this]
}

# A template without a static address is good enough for DHCP.
run "dhcp" {
  command = plan
  variables {
    template = "no-static-ip"
    network = {
      vlan_id = 100
      dhcp    = true
    }
  }
  assert {
    condition     = proxmox_virtual_environment_vm.this.initialization[0].ip_config[0].ipv4[0].address == "dhcp" && proxmox_virtual_environment_vm.this.initialization[0].ip_config[0].ipv4[0].gateway == null
    error_message = "the address comes by DHCP"
  }
}

# Who forces it says why, and the VM tells.
run "forced" {
  variables {
    template = "no-python3"
    force    = "python3 comes with the user data of this host"
  }
  assert {
    condition     = output.forced == "Template requirements were not checked: python3 comes with the user data of this host"
    error_message = "the output has the reason"
  }
  assert {
    condition     = strcontains(proxmox_virtual_environment_vm.this.description, "python3 comes with the user data of this host") && contains(proxmox_virtual_environment_vm.this.tags, "template-forced")
    error_message = "the VM has the reason"
  }
}

# A VM that is there needs no template any more.
run "there_already" {
  command = plan
  variables {
    template = "debian-99-template"
    force    = "python3 comes with the user data of this host"
  }
  assert {
    condition     = proxmox_virtual_environment_vm.this.vm_id > 100
    error_message = "it stays"
  }
}

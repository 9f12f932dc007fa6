# The VM of the test is a leftover until it is known.
run "vm" {
  module {
    source = "../proxmox-vm"
  }
  variables {
    name        = "left"
    tenant      = "grooveiq"
    pool        = "grooveiq"
    target_node = "pve-tenant"
    template    = "fedora-43-template"
    cores       = 1
    memory      = 512
    disk        = "10G"
    network     = { vlan_id = 100, ip = "10.100.0.10", gateway = "10.100.0.1" }
  }
}

run "unknown" {
  command = plan
  variables {
    tenant = "grooveiq"
  }
  expect_failures = [check.leftovers]
  assert {
    condition     = length(output.leftovers) == 1 && output.leftovers[0].name == "left" && output.leftovers[0].node == "pve-tenant" && output.leftovers[0].status == "running"
    error_message = "the VM is a leftover"
  }
}

run "known" {
  command = plan
  variables {
    tenant = "grooveiq"
    known  = [run.vm.vm_id]
  }
  assert {
    condition     = length(output.leftovers) == 0
    error_message = "a VM that is known is none"
  }
}

run "another_tenant" {
  command = plan
  variables {
    tenant = "vintronics"
  }
  assert {
    condition     = length(output.leftovers) == 0
    error_message = "a VM of another tenant is none"
  }
}

# Each value that is wrong is refused at its field.
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

run "vlan_0" {
  command = plan
  variables {
    network = {
      vlan_id = 0
      ip      = "10.100.0.10"
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "vlan_4095" {
  command = plan
  variables {
    network = {
      vlan_id = 4095
      ip      = "10.100.0.10"
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "ip_outside_of_the_subnet" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.101.0.10"
      gateway = "10.100.0.1"
      subnet  = "10.100.0.0/24"
    }
  }
  expect_failures = [var.network]
}

run "ip_outside_of_the_gateways_subnet" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.101.0.10"
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "gateway_outside_of_the_subnet" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10"
      gateway = "10.101.0.1"
      subnet  = "10.100.0.0/24"
    }
  }
  expect_failures = [var.network]
}

run "gateway_outside_of_the_ips_subnet" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10"
      gateway = "10.101.0.1"
    }
  }
  expect_failures = [var.network]
}

run "ip_with_a_prefix_length" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10/24"
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "no_ip" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "no_gateway" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10"
    }
  }
  expect_failures = [var.network]
}

run "ip_is_the_gateway" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.1"
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "ip_is_the_broadcast_address" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.255"
      gateway = "10.100.0.1"
    }
  }
  expect_failures = [var.network]
}

run "prefix_31" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10"
      gateway = "10.100.0.1"
      prefix  = 31
    }
  }
  expect_failures = [var.network]
}

run "another_prefix_than_the_subnet" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10"
      gateway = "10.100.0.1"
      prefix  = 25
      subnet  = "10.100.0.0/24"
    }
  }
  expect_failures = [var.network]
}

run "no_subnet" {
  command = plan
  variables {
    network = {
      vlan_id = 100
      ip      = "10.100.0.10"
      gateway = "10.100.0.1"
      subnet  = "10.100.0.0"
    }
  }
  expect_failures = [var.network]
}

run "disk_without_a_unit" {
  command = plan
  variables {
    disk = "32"
  }
  expect_failures = [var.disk]
}

run "disk_of_nothing" {
  command = plan
  variables {
    disk = "0G"
  }
  expect_failures = [var.disk]
}

run "memory_in_gigabytes" {
  command = plan
  variables {
    memory = 4
  }
  expect_failures = [var.memory]
}

run "cores_of_nothing" {
  command = plan
  variables {
    cores = 0
  }
  expect_failures = [var.cores]
}

run "half_a_core" {
  command = plan
  variables {
    cores = 1.5
  }
  expect_failures = [var.cores]
}

run "name_with_a_dot" {
  command = plan
  variables {
    name = "api.example.com"
  }
  expect_failures = [var.name]
}

run "tag_with_a_space" {
  command = plan
  variables {
    tags = ["a b"]
  }
  expect_failures = [var.tags]
}

run "no_public_key" {
  command = plan
  variables {
    ssh_keys = ["id_ed25519"]
  }
  expect_failures = [var.ssh_keys]
}

run "no_snippet" {
  command = plan
  variables {
    user_data = "user.yaml"
  }
  expect_failures = [var.user_data]
}

run "no_policy" {
  command = plan
  variables {
    mac_policy = "random"
  }
  expect_failures = [var.mac_policy]
}

run "a_reason_of_a_word" {
  command = plan
  variables {
    force = "yes"
  }
  expect_failures = [var.force]
}

# What blocks of a tenant have in common may be in the file tenant.yaml beside them, in the
# root module: tenant, pool, tags, groups, allowed_nodes, ssh_user, ssh_keys, dns, mac_policy,
# datastore, agent. What a block sets counts.
locals {
  file     = "${path.root}/tenant.yaml"
  defaults = yamldecode(fileexists(local.file) ? file(local.file) : "{}")

  tenant        = var.tenant != null ? var.tenant : try(local.defaults.tenant, "")
  pool          = var.pool != null ? var.pool : try(local.defaults.pool, null)
  tags          = var.tags != null ? var.tags : try(local.defaults.tags, [])
  groups        = var.groups != null ? var.groups : try(local.defaults.groups, [])
  allowed_nodes = var.allowed_nodes != null ? var.allowed_nodes : try(local.defaults.allowed_nodes, null)
  ssh_user      = var.ssh_user != null ? var.ssh_user : try(local.defaults.ssh_user, "ansible")
  ssh_keys      = var.ssh_keys != null ? var.ssh_keys : try(local.defaults.ssh_keys, [])
  dns_servers   = var.dns != null ? var.dns.servers : try(local.defaults.dns.servers, [])
  dns_domain    = var.dns != null ? var.dns.domain : try(local.defaults.dns.domain, null)
  datastore     = var.datastore != null ? var.datastore : try(local.defaults.datastore, "local-lvm")
  mac_policy    = var.mac_policy != null ? var.mac_policy : try(local.defaults.mac_policy, "auto")

  agent = var.agent != null ? var.agent : try(tobool(local.defaults.agent), var.network.dhcp)
  disk  = tonumber(trimsuffix(trimsuffix(var.disk, "G"), "T")) * (endswith(var.disk, "T") ? 1024 : 1)
}

# The MAC address of a tenant and a name is the same on every machine: the first 12 digits of a
# SHA-256, with the bits of a locally administered unicast address.
locals {
  hash   = sha256("terrier/proxmox-vm/v1\n${local.tenant}/${var.name}")
  second = ["2", "6", "a", "e"][floor(parseint(substr(local.hash, 1, 1), 16) / 4)]
  hashed = upper(join(":", concat(["${substr(local.hash, 0, 1)}${local.second}"], [for i in range(1, 6) : substr(local.hash, 2 * i, 2)])))
  mac    = local.mac_policy == "auto" ? null : upper(coalesce(var.mac, local.hashed))
}

data "proxmox_virtual_environment_vms" "template" {
  node_name = var.target_node
  filter {
    name   = "name"
    values = [var.template]
  }
  filter {
    name   = "template"
    values = ["true"]
  }
}

# The VM as it is before the plan.
data "proxmox_virtual_environment_vms" "before" {
  node_name = var.target_node
  tags      = local.tenant == "" ? [] : [local.tenant]
  filter {
    name   = "name"
    values = [var.name]
  }
  filter {
    name   = "template"
    values = ["false"]
  }
}

locals {
  templates = data.proxmox_virtual_environment_vms.template.vms
  before    = data.proxmox_virtual_environment_vms.before.vms
  was_auto  = anytrue([for vm in local.before : contains(vm.tags, "mac-auto")])

  # An image factory declares with these tags what its template fulfils.
  requirements = merge({
    cloud-init = "a cloud-init drive"
    ssh-keys   = "injection of SSH keys"
    python3    = "python3 for Ansible"
  }, var.network.dhcp ? { dhcp = "DHCP" } : { static-ip = "a static address by cloud-init" })
  missing = [for tag, what in local.requirements : "${what} (tag ${tag})" if !contains(try(local.templates[0].tags, []), tag)]
  forced  = var.force == null ? "" : "Template requirements were not checked: ${var.force}"
}

resource "proxmox_virtual_environment_vm" "this" {
  name            = var.name
  node_name       = var.target_node
  description     = join("\n", compact(["Managed by Terrier.", local.forced]))
  pool_id         = local.pool
  started         = var.started
  on_boot         = true
  protection      = var.protection
  stop_on_destroy = true
  tags = sort(distinct(concat(
    local.tags,
    compact([local.tenant, local.mac_policy == "auto" ? "mac-auto" : "mac-deterministic", var.force == null ? "" : "template-forced"]),
  )))

  clone {
    vm_id        = try(local.templates[0].vm_id, 0)
    full         = var.full_clone
    datastore_id = var.full_clone ? local.datastore : null
  }

  agent {
    enabled = local.agent
  }

  cpu {
    cores = var.cores
  }

  memory {
    dedicated = var.memory
  }

  disk {
    interface    = "scsi0"
    datastore_id = local.datastore
    size         = local.disk
  }

  network_device {
    bridge      = var.network.bridge
    vlan_id     = var.network.vlan_id
    mac_address = local.mac
  }

  initialization {
    datastore_id      = local.datastore
    user_data_file_id = var.user_data

    ip_config {
      ipv4 {
        address = var.network.dhcp ? "dhcp" : "${var.network.ip}/${var.network.prefix}"
        gateway = var.network.dhcp ? null : var.network.gateway
      }
    }

    dynamic "dns" {
      for_each = length(local.dns_servers) > 0 || local.dns_domain != null ? [local.dns_servers] : []
      content {
        servers = dns.value
        domain  = local.dns_domain
      }
    }

    dynamic "user_account" {
      for_each = var.user_data == null ? [local.ssh_user] : []
      content {
        username = user_account.value
        keys     = local.ssh_keys
      }
    }
  }

  operating_system {
    type = "l26"
  }

  lifecycle {
    # A new build of the template has another number, and replaces no VM.
    ignore_changes = [clone]

    precondition {
      condition     = local.allowed_nodes == null ? true : contains(local.allowed_nodes, var.target_node)
      error_message = "target_node: ${var.target_node} is none of the allowed nodes ${join(", ", coalesce(local.allowed_nodes, []))}."
    }
    precondition {
      condition     = length(local.templates) == 1 || length(local.before) > 0
      error_message = "template: the API token sees ${length(local.templates)} templates named ${var.template} on the node ${var.target_node}, and exactly one is needed. Write the name of a template of this node, or let the token see it."
    }
    precondition {
      condition     = length(local.missing) == 0 || length(local.templates) != 1 || length(local.before) > 0 || var.force != null
      error_message = "template: ${var.template} declares no ${join(", no ", local.missing)}. Let the image factory build it in and set the tag, or set force to the reason why it is not needed."
    }
    precondition {
      condition     = local.mac_policy != "auto" || var.mac == null
      error_message = "mac: it is ${coalesce(var.mac, "nothing")}, and mac_policy is auto. Set mac_policy to deterministic, or remove mac."
    }
    precondition {
      condition     = local.mac_policy != "require" || var.mac != null
      error_message = "mac: it is not set, and mac_policy is require. Write mac = \"${local.hashed}\", which is the address of this tenant and name, here and into the inventory."
    }
    precondition {
      condition     = local.mac_policy == "auto" || var.mac != null || local.tenant != ""
      error_message = "tenant: it is not set, and a deterministic MAC address is made from it. Set tenant, or mac."
    }
  }
}

check "mac_policy" {
  assert {
    condition     = local.mac_policy == "auto" || !local.was_auto
    error_message = "mac_policy: the MAC address of ${var.name} changes from one that Proxmox VE drew to ${coalesce(local.mac, "another")}. Leases of DHCP and rules for the former address no longer fit. Make the reservation of the output dhcp_reservation before the apply."
  }
}

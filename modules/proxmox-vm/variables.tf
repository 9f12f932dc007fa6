variable "name" {
  description = "name of the VM, and of the host in it"
  type        = string
  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.name))
    error_message = "name: ${jsonencode(var.name)} is no host name. Write up to 63 small letters, digits and hyphens, as api-vm01."
  }
}

variable "target_node" {
  description = "node of Proxmox VE that the VM runs on. A policy of the platform says which ones a tenant may use"
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$", var.target_node))
    error_message = "target_node: ${jsonencode(var.target_node)} is no name of a node."
  }
}

variable "template" {
  description = "name of the template on the target node that the VM is cloned from. Another template is for new VMs: it changes none that is there"
  type        = string
  validation {
    condition     = length(var.template) > 0
    error_message = "template: it is empty. Write the name of a template, as fedora-43-template."
  }
}

variable "cores" {
  description = "number of CPU cores"
  type        = number
  validation {
    condition     = var.cores >= 1 && var.cores <= 128 && floor(var.cores) == var.cores
    error_message = "cores: ${var.cores} is no whole number from 1 to 128."
  }
}

variable "memory" {
  description = "memory in MiB"
  type        = number
  validation {
    condition     = var.memory >= 256 && floor(var.memory) == var.memory
    error_message = "memory: ${var.memory} is no whole number of at least 256. The unit is MiB: 4 GiB are 4096."
  }
}

variable "disk" {
  description = "size of the disk scsi0, with its unit: 32G, 1T. A disk grows and does not shrink"
  type        = string
  validation {
    condition     = can(regex("^[1-9][0-9]{0,4}[GT]$", var.disk))
    error_message = "disk: ${jsonencode(var.disk)} is no size. Write a whole number and its unit, G or T, as 32G."
  }
}

variable "network" {
  description = <<-EOT
    the network device net0:
    vlan_id - VLAN of the tenant, 1 to 4094
    ip      - IPv4 address without a prefix length. With dhcp it is the address of the reservation
    gateway - IPv4 address of the gateway
    prefix  - prefix length of the subnet, 24 if it is not set
    subnet  - subnet of the VLAN, as 10.100.0.0/24, to check ip and gateway against
    dhcp    - whether the address comes by DHCP
    bridge  - bridge of the node, vmbr0 if it is not set
  EOT
  type = object({
    vlan_id = number
    ip      = optional(string)
    gateway = optional(string)
    prefix  = optional(number, 24)
    subnet  = optional(string)
    dhcp    = optional(bool, false)
    bridge  = optional(string, "vmbr0")
  })
  validation {
    condition     = var.network.vlan_id >= 1 && var.network.vlan_id <= 4094 && floor(var.network.vlan_id) == var.network.vlan_id
    error_message = "network.vlan_id: ${var.network.vlan_id} is no VLAN. Write a whole number from 1 to 4094."
  }
  validation {
    condition     = var.network.prefix >= 8 && var.network.prefix <= 30 && floor(var.network.prefix) == var.network.prefix
    error_message = "network.prefix: ${var.network.prefix} is no prefix length from 8 to 30."
  }
  validation {
    condition     = (var.network.dhcp && var.network.ip == null) || can(cidrhost("${var.network.ip}/32", 0)) && can(regex("^[0-9.]+$", var.network.ip))
    error_message = "network.ip: ${coalesce(var.network.ip, "nothing")} is no IPv4 address without a prefix length. Write it, as 10.100.0.10, or set network.dhcp."
  }
  validation {
    condition     = (var.network.dhcp && var.network.gateway == null) || can(cidrhost("${var.network.gateway}/32", 0)) && can(regex("^[0-9.]+$", var.network.gateway))
    error_message = "network.gateway: ${coalesce(var.network.gateway, "nothing")} is no IPv4 address. Write it, as 10.100.0.1, or set network.dhcp."
  }
  validation {
    condition     = var.network.subnet == null || can(regex("^[0-9.]+/[0-9]+$", var.network.subnet)) && can(cidrhost(var.network.subnet, 0))
    error_message = "network.subnet: ${coalesce(var.network.subnet, "nothing")} is no subnet. Write it, as 10.100.0.0/24."
  }
  validation {
    condition     = try(cidrhost(var.network.subnet, 0) == cidrhost("${var.network.ip}/${split("/", var.network.subnet)[1]}", 0), true)
    error_message = "network.ip: ${coalesce(var.network.ip, "nothing")} is outside of network.subnet, ${coalesce(var.network.subnet, "nothing")}."
  }
  validation {
    condition     = try(cidrhost(var.network.subnet, 0) == cidrhost("${var.network.gateway}/${split("/", var.network.subnet)[1]}", 0), true)
    error_message = "network.gateway: ${coalesce(var.network.gateway, "nothing")} is outside of network.subnet, ${coalesce(var.network.subnet, "nothing")}."
  }
  validation {
    condition     = try(tonumber(split("/", var.network.subnet)[1]) == var.network.prefix, true)
    error_message = "network.prefix: ${var.network.prefix} is not the prefix length of network.subnet, ${coalesce(var.network.subnet, "nothing")}."
  }
  validation {
    condition     = try(cidrhost("${var.network.ip}/${var.network.prefix}", 0) == cidrhost("${var.network.gateway}/${var.network.prefix}", 0), true)
    error_message = "network.gateway: ${coalesce(var.network.gateway, "nothing")} and network.ip, ${coalesce(var.network.ip, "nothing")}, are not in one subnet with the prefix length ${var.network.prefix}. One of them is wrong, or network.prefix."
  }
  validation {
    condition     = try(!contains([var.network.gateway, cidrhost("${var.network.ip}/${var.network.prefix}", 0), cidrhost("${var.network.ip}/${var.network.prefix}", -1)], var.network.ip), true)
    error_message = "network.ip: ${coalesce(var.network.ip, "nothing")} is the gateway, or the first or last address of its subnet. Write another address."
  }
}

variable "tenant" {
  description = "name of the tenant: a tag of the VM, and part of what a deterministic MAC address is made from"
  type        = string
  default     = null
  validation {
    condition     = var.tenant == null || can(regex("^[a-z0-9][a-z0-9-]*$", var.tenant))
    error_message = "tenant: ${coalesce(var.tenant, "nothing")} is no name of small letters, digits and hyphens."
  }
}

variable "pool" {
  description = "pool of Proxmox VE that the VM is in. The token of a tenant has its rights there"
  type        = string
  default     = null
}

variable "tags" {
  description = "more tags of the VM"
  type        = list(string)
  default     = null
  validation {
    condition     = alltrue([for t in coalesce(var.tags, []) : can(regex("^[a-z0-9_][a-z0-9_.+-]*$", t))])
    error_message = "tags: a tag has small letters, digits and _ . + - only."
  }
}

variable "groups" {
  description = "groups of Ansible that the host is in"
  type        = list(string)
  default     = null
}

variable "allowed_nodes" {
  description = "nodes that target_node may be. This tells early; a policy of the platform decides"
  type        = list(string)
  default     = null
}

variable "ssh_user" {
  description = "user that automation signs in as"
  type        = string
  default     = null
}

variable "ssh_keys" {
  description = "public SSH keys of that user, which cloud-init writes at the first start"
  type        = list(string)
  default     = null
  validation {
    condition     = alltrue([for k in coalesce(var.ssh_keys, []) : can(regex("^(ssh-|ecdsa-|sk-)\\S+ \\S+", k))])
    error_message = "ssh_keys: one of them is no public key in one line, as ssh-ed25519 AAAA… ops."
  }
}

variable "user_data" {
  description = "snippet with user data for cloud-init, as local:snippets/api.yaml. It takes the place of ssh_user and ssh_keys"
  type        = string
  default     = null
  validation {
    condition     = var.user_data == null || can(regex("^[^:]+:snippets/.+$", var.user_data))
    error_message = "user_data: ${coalesce(var.user_data, "nothing")} is no snippet. Write STORAGE:snippets/FILE."
  }
}

variable "dns" {
  description = "DNS servers and search domain of the host"
  type = object({
    servers = list(string)
    domain  = optional(string)
  })
  default = null
}

variable "mac_policy" {
  description = "auto: Proxmox VE draws the MAC address. deterministic: it is mac, or made from tenant and name. require: as deterministic, and mac has to be written"
  type        = string
  default     = null
  validation {
    condition     = var.mac_policy == null || contains(["auto", "deterministic", "require"], coalesce(var.mac_policy, "auto"))
    error_message = "mac_policy: ${coalesce(var.mac_policy, "nothing")} is none of auto, deterministic, require."
  }
}

variable "mac" {
  description = "MAC address, if mac_policy is not auto"
  type        = string
  default     = null
  validation {
    condition     = var.mac == null || can(regex("^[0-9A-Fa-f][26AaEe](:[0-9A-Fa-f]{2}){5}$", coalesce(var.mac, "nothing")))
    error_message = "mac: ${coalesce(var.mac, "nothing")} is no locally administered unicast address. Its second digit has to be 2, 6, A or E, as in 02:00:5E:10:00:01."
  }
}

variable "datastore" {
  description = "storage of the disks"
  type        = string
  default     = null
}

variable "full_clone" {
  description = "whether the disk is a copy of the template's. A linked clone needs its template as long as it is there"
  type        = bool
  default     = true
}

variable "agent" {
  description = "whether the guest runs qemu-guest-agent. With dhcp it does if this is not set, since only the agent tells the address"
  type        = bool
  default     = null
}

variable "started" {
  description = "whether the VM runs"
  type        = bool
  default     = true
}

variable "protection" {
  description = "whether Proxmox VE refuses to delete the VM"
  type        = bool
  default     = false
}

variable "force" {
  description = "why the requirements on the template are not checked. The reason is recorded in the description of the VM"
  type        = string
  default     = null
  validation {
    condition     = var.force == null || length(trimspace(coalesce(var.force, " "))) >= 10
    error_message = "force: the reason is too short. Write at least 10 characters, as: python3 comes with the user data."
  }
}

variable "tenant" {
  description = "name of the tenant: the tag that its VMs have"
  type        = string
  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]*$", var.tenant))
    error_message = "tenant: ${jsonencode(var.tenant)} is no name of small letters, digits and hyphens."
  }
}

variable "known" {
  description = "numbers of the VMs that stacks of the tenant have: their outputs vm_id. None after a destroy"
  type        = list(number)
  default     = []
}

data "proxmox_virtual_environment_vms" "tagged" {
  tags = [var.tenant]
  filter {
    name   = "template"
    values = ["false"]
  }
}

locals {
  leftovers = [for vm in data.proxmox_virtual_environment_vms.tagged.vms : { vm_id = vm.vm_id, name = vm.name, node = vm.node_name, status = vm.status } if !contains(var.known, vm.vm_id)]
}

output "leftovers" {
  description = "VMs with the tag of the tenant that are not known: {vm_id, name, node, status}"
  value       = local.leftovers
}

check "leftovers" {
  assert {
    condition     = length(local.leftovers) == 0
    error_message = "VMs of ${var.tenant} that no stack has: ${join(", ", [for vm in local.leftovers : "${vm.vm_id} (${vm.name} on ${vm.node})"])}. Import them, or delete them."
  }
}

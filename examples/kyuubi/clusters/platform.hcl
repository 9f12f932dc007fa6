# What the stack vault may do: make stores, methods of authentication, policies and roles, and
# write what is in the store kyuubi.
path "sys/mounts/*" {
  capabilities = ["create", "read", "update", "delete"]
}
path "sys/auth/*" {
  capabilities = ["create", "read", "update", "delete", "sudo"]
}
path "sys/policies/acl/kyuubi-*" {
  capabilities = ["create", "read", "update", "delete"]
}
path "auth/kubernetes/*" {
  capabilities = ["create", "read", "update", "delete"]
}
path "kyuubi/*" {
  capabilities = ["create", "read", "update", "delete"]
}

resource "terraform_data" "wrong" {
  input = var.nowhere
}

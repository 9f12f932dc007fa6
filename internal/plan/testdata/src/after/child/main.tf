resource "terraform_data" "inner" {
  count = 0
  input = "inside"
}

resource "terraform_data" "inner" {
  input = "inside"
}

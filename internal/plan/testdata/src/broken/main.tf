resource "terraform_data" "fails" {
  input = "x"
  provisioner "local-exec" {
    command = "echo about to fail; exit 3"
  }
}

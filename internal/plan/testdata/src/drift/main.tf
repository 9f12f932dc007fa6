resource "local_file" "motd" {
  content  = "hello"
  filename = "motd"
}

resource "terraform_data" "reader" {
  input = local_file.motd.id
}

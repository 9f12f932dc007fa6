variable "var1" {
  type = string
}

variable "var2" {
  type = string
}

resource "terraform_data" "example" {
  input = "${var.var1} and ${var.var2}"
}

output "example" {
  value = terraform_data.example.output
}

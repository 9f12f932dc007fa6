region            = "eu-central-1"
database_password = "copper-willow-5"
instances = {
  a = { admin_password = "copper-willow-5", size = "large" }
}
secret_name = "database"

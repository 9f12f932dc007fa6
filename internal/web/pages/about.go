package pages

import "github.com/terrier-iac/terrier/internal/service"

// About shows what runs here and who the visitor is.
func About(v *Visit) (Page, error) {
	return Page{Title: "About", Section: "about", Template: "about", Data: struct {
		Version string
		User    service.User
	}{v.House.Version, v.User}}, nil
}

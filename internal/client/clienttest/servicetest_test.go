package clienttest

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
)

// The service itself does what everything must do.
func TestStruct(t *testing.T) {
	Run(t, func(t *testing.T, w *World, who Who) Subject {
		people := must(command.NewPeople(w.Config, kinds.All(), w.Records, w.Now))(t)
		person := must(people.As(w.User(who)))(t)
		stacks, ok := person.Stacks.(command.StackAPI)
		tenants, too := person.Tenants.(command.TenantAPI)
		if !ok || !too {
			t.Fatal("a person has other hands than the service")
		}
		return Subject{Stacks: stacks, Tenants: tenants}
	})
}

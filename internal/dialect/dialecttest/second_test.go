package dialecttest

import "testing"

func TestSecond(t *testing.T) {
	o := Second{}.New()
	o.SetNamespace("apps")
	o.SetName("net")
	Run(t, Second{}, o)
}

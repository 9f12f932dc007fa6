package library

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/meter"
)

// Each function is one that is there, and none looks at the time or the machine.
func TestNames(t *testing.T) {
	for _, name := range Names() {
		if fn := functions()[name]; !fn.IsValid() || fn.Kind() != reflect.Func {
			t.Errorf("%s is no function", name)
		}
	}
	for _, name := range strings.Fields("env expandenv getHostByName now date ago uuidv4 randAlpha randInt shuffle genCA genPrivateKey genSignedCert bcrypt htpasswd derivePassword encryptAES set unset osBase") {
		if _, ok := functions()[name]; ok {
			t.Errorf("templates can call %s", name)
		}
	}
}

func TestCall(t *testing.T) {
	for name, tt := range map[string]struct {
		fn   string
		args []any
		want any
		err  error
	}{
		"a function":               {"upper", []any{"a"}, "A", nil},
		"numbers of another width": {"trunc", []any{int64(2), "abc"}, "ab", nil},
		"what is not there":        {"upper", []any{nil}, nil, meter.ErrAbsent},
		"a long text":              {"repeat", []any{2 << 20, "a"}, nil, meter.ErrTooMuch},
		"more than is left":        {"repeat", []any{900, strings.Repeat("a", 2000)}, nil, meter.ErrTooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			b := &meter.Budget{Text: 1 << 20}
			got, err := Call(b, tt.fn, tt.args)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("Call() = %v, %v; want %v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

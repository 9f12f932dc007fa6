// Package flags makes flags of the fields of a struct: tags name the flag, the environment
// variable, the default and the help. Of several variables the first that is set counts.
//
// It checks no values. Start reading at Bind.
package flags

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Bind registers the flags of c, a pointer to a struct. A flag overrides its environment variable,
// which overrides the default. Fields in omit stay zero.
func Bind(flags *pflag.FlagSet, c any, environ func(string) string, omit ...string) error {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name, help, def := tag.Get("flag"), tag.Get("help"), tag.Get("default")
		if slices.Contains(omit, name) {
			continue
		}
		from := ""
		if names := tag.Get("env"); names != "" {
			help += " [" + strings.ReplaceAll(names, ",", ", ") + "]"
			for env := range strings.SplitSeq(names, ",") {
				if set := environ(env); set != "" {
					def, from = set, env
					break
				}
			}
		}
		var err error
		switch p := v.Field(i).Addr().Interface().(type) {
		case *string:
			flags.StringVarP(p, name, tag.Get("short"), def, help)
		case *[]string:
			var list []string
			if def != "" {
				list = strings.Split(def, ",") // a colon is part of HOST:PORT
			}
			flags.StringArrayVar(p, name, list, help)
		case *int:
			var n int
			n, err = strconv.Atoi(def)
			flags.IntVar(p, name, n, help)
		case *bool:
			on := false
			if def != "" {
				on, err = strconv.ParseBool(def)
			}
			flags.BoolVar(p, name, on, help)
		case *time.Duration:
			var d time.Duration
			d, err = time.ParseDuration(def)
			flags.DurationVar(p, name, d, help)
		default:
			err = fmt.Errorf("a field of type %T cannot be a flag", p)
		}
		if err != nil {
			return fmt.Errorf("--%s, from the environment variable %s: %w", name, from, err)
		}
	}
	return nil
}

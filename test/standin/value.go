package main

import (
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// plainObject is an object as JSON has it. What is unknown is left out.
func plainObject(v tftypes.Value) map[string]any {
	m, _ := plain(v).(map[string]any)
	return m
}

func plain(v tftypes.Value) any {
	if !v.IsKnown() || v.IsNull() {
		return nil
	}
	var text string
	var truth bool
	var number big.Float
	var list []tftypes.Value
	var fields map[string]tftypes.Value
	switch {
	case v.As(&text) == nil:
		return text
	case v.As(&truth) == nil:
		return truth
	case v.As(&number) == nil:
		f, _ := number.Float64()
		return f
	case v.As(&fields) == nil:
		m := map[string]any{}
		for name, field := range fields {
			if p := plain(field); p != nil {
				m[name] = p
			}
		}
		return m
	case v.As(&list) == nil:
		l := []any{}
		for _, item := range list {
			l = append(l, plain(item))
		}
		return l
	default:
		return nil
	}
}

// complete gives values to what is unknown in a planned object; null where there
// is none.
func complete(plan tftypes.Value, values map[string]any) (tftypes.Value, error) {
	var fields map[string]tftypes.Value
	if err := plan.As(&fields); err != nil {
		return plan, fmt.Errorf("reading the plan: %w", err)
	}
	for name, field := range fields {
		if field.IsKnown() {
			continue
		}
		if err := tftypes.ValidateValue(field.Type(), values[name]); err != nil {
			return plan, fmt.Errorf("computing %s: %w", name, err)
		}
		fields[name] = tftypes.NewValue(field.Type(), values[name])
	}
	return tftypes.NewValue(plan.Type(), fields), nil
}

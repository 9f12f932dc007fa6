package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Remembered are prints of the secret values that a stack was given over time.
// The values that it was given last come last.
type Remembered struct {
	Key    []byte            `json:"key"` // random, one for each stack
	Values []RememberedValue `json:"values"`

	// Lost is when an earlier record was found damaged, until the state holds only
	// values that are remembered again. What came from a Secret before is not known:
	// every value may have.
	Lost time.Time `json:"lost,omitzero"`
}

// lostID marks, among the values, that the record is incomplete. Its form has no prints,
// so that a release fails which does not know Lost: it would show what it must hide.
const lostID = "lost"

// MarshalJSON implements json.Marshaler.
func (m Remembered) MarshalJSON() ([]byte, error) {
	type plain Remembered
	if !m.Lost.IsZero() {
		m.Values = append(slices.Clone(m.Values), RememberedValue{ID: lostID, Forms: []string{m.Lost.UTC().Format(time.RFC3339Nano)}})
	}
	return json.Marshal(plain(m))
}

// UnmarshalJSON implements json.Unmarshaler. A release that does not know Lost has
// removed it, and has left the mark.
func (m *Remembered) UnmarshalJSON(b []byte) error {
	type plain Remembered
	var read plain
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	*m = Remembered(read)
	i := slices.IndexFunc(m.Values, func(v RememberedValue) bool { return v.ID == lostID })
	if i < 0 {
		return nil
	}
	since, err := time.Parse(time.RFC3339Nano, strings.Join(m.Values[i].Forms, ""))
	if err != nil {
		return fmt.Errorf("reading since when the record is incomplete: %w", err)
	}
	m.Lost, m.Values = since, slices.Delete(m.Values, i, i+1)
	return nil
}

// ReadRemembered reads what is kept of secret values. What is not whole is an error:
// values that it knew would be shown.
func ReadRemembered(b []byte) (Remembered, error) {
	var m Remembered
	err := json.Unmarshal(b, &m)
	if err == nil && len(m.Key) == 0 {
		err = errors.New("it has no key")
	}
	if err == nil {
		_, err = m.Prints()
	}
	return m, err
}

// RememberedValue is what is kept of one secret value.
type RememberedValue struct {
	ID    string   `json:"id"`             // a keyed hash of the value
	Forms []string `json:"forms"`          // of each form: length.hint.hash
	Made  bool     `json:"made,omitempty"` // for one run alone; no later run is given it
}

// formsKept bounds the forms of all values of one stack, and madeKept in addition those of
// values that were made for one run: there are others for each run, and a state rarely holds
// them, so they take no room from values that it may hold for years. Values that the stack
// was given last are kept whatever they come to.
const (
	formsKept = 1 << 17
	madeKept  = 1 << 14
)

// Add remembers the values that a stack is given now, and reports whether there
// was anything new among them. The values that it was given longest ago go when
// there is no room.
func (m *Remembered) Add(values []string) bool { return m.add(values, false) }

// AddMade is Add for values that were made for one run.
func (m *Remembered) AddMade(values []string) bool { return m.add(values, true) }

func (m *Remembered) add(values []string, made bool) bool {
	h := Prints{Key: m.Key}.hasher()
	was := map[string]RememberedValue{}
	for _, v := range m.Values {
		was[v.ID] = v
	}
	var now []RememberedValue
	given, fresh := map[string]bool{}, false
	for _, value := range values {
		id := h.hash("value\x00" + value)
		if given[id] || len(forms(value)) == 0 && !isShort(value) {
			continue
		}
		given[id] = true
		v, known := was[id]
		switch {
		case !known:
			fresh, v = true, RememberedValue{ID: id, Forms: printsOf(h, value), Made: made}
		case v.Made && !made:
			fresh, v.Made = true, false
		}
		now = append(now, v)
	}
	if !fresh {
		return false
	}
	room := map[bool]int{false: formsKept, true: madeKept}
	for _, v := range now {
		room[v.Made] -= len(v.Forms)
	}
	var before []RememberedValue // the newest first
	for _, v := range slices.Backward(m.Values) {
		if given[v.ID] {
			continue
		}
		if room[v.Made] -= len(v.Forms); room[v.Made] >= 0 { // once it is below, nothing older fits
			before = append(before, v)
		}
	}
	slices.Reverse(before)
	m.Values = append(before, now...)
	return true
}

// printsOf are the prints of one value, sorted, so that their order tells nothing.
func printsOf(h *hasher, value string) []string {
	var out []string
	if isShort(value) {
		out = append(out, fmt.Sprintf("%d.0.%s", len(value), h.hash(value)))
	}
	for _, form := range forms(value) {
		if len(form) >= minValue {
			out = append(out, fmt.Sprintf("%d.%d.%s", len(form), h.hint(form), h.hash(form)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Prints returns the prints of all values.
func (m Remembered) Prints() (Prints, error) {
	p := Prints{Key: m.Key, Forms: map[int]map[string]bool{}, All: !m.Lost.IsZero()}
	for _, v := range m.Values {
		for _, form := range v.Forms {
			parts := strings.Split(form, ".")
			if len(parts) != 3 {
				return Prints{}, fmt.Errorf("reading the prints of a secret value: %q has %d parts, not 3", form, len(parts))
			}
			length, err := strconv.Atoi(parts[0])
			if err != nil {
				return Prints{}, fmt.Errorf("reading the prints of a secret value: %w", err)
			}
			hint, err := strconv.ParseUint(parts[1], 10, 16)
			if err != nil {
				return Prints{}, fmt.Errorf("reading the prints of a secret value: %w", err)
			}
			p.add(length, uint16(hint), parts[2])
		}
	}
	return p, nil
}

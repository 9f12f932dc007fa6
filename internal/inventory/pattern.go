package inventory

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// letters is the order of ranges of letters, as in Python's string.ascii_letters.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// hostNames expands the key of a host: web[01:03].example.com is three hosts, and
// example.com:2222 one with a port, which is zero otherwise.
func hostNames(key string) (names []string, port int, err error) {
	if strings.TrimSpace(key) != key || key == "" || strings.ContainsAny(key, " \t\n,") {
		return nil, 0, fmt.Errorf("%s is no name of a host", quoted(key))
	}
	if len(key) > maxKey {
		return nil, 0, fmt.Errorf("the host %s has %d bytes, and may have %d", quoted(key), len(key), maxKey)
	}
	name, port, err := cutPort(key)
	if err != nil {
		return nil, 0, err
	}
	names, err = expand(name)
	if err != nil {
		return nil, 0, fmt.Errorf("the host %s: %w", quoted(key), err)
	}
	for _, each := range names {
		if len(each) > maxName {
			return nil, 0, fmt.Errorf("the host %s has %d bytes, and may have %d", quoted(each), len(each), maxName)
		}
	}
	return names, port, nil
}

// cutPort takes a port from the end. An IPv6 address has one only in brackets.
func cutPort(key string) (string, int, error) {
	if inner, after, ok := bracketed(key); ok {
		if after == "" {
			return inner, 0, nil
		}
		port, err := portOf(strings.TrimPrefix(after, ":"))
		return inner, port, err
	}
	if _, err := netip.ParseAddr(key); err == nil {
		return key, 0, nil
	}
	i := strings.LastIndexByte(key, ':')
	closed, opened := strings.LastIndexByte(key, ']'), strings.LastIndexByte(key, '[')
	if i < 0 || i < closed || opened > closed { // the colon of a range
		return key, 0, nil
	}
	port, err := portOf(key[i+1:])
	if err != nil {
		return "", 0, fmt.Errorf("the host %s: %w", quoted(key), err)
	}
	return key[:i], port, nil
}

// bracketed is an IPv6 address in brackets, with what is behind.
func bracketed(key string) (address, after string, ok bool) {
	if !strings.HasPrefix(key, "[") {
		return "", "", false
	}
	inner, after, found := strings.Cut(key[1:], "]")
	a, err := netip.ParseAddr(inner)
	if !found || err != nil || !a.Is6() || after != "" && after[0] != ':' {
		return "", "", false
	}
	return inner, after, true
}

func portOf(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("%s is no port", quoted(text))
	}
	return n, nil
}

// expand expands the ranges of a name from the left to the right.
func expand(name string) ([]string, error) {
	before, rest, ok := strings.Cut(name, "[")
	if !ok {
		if strings.Contains(name, "]") {
			return nil, errors.New("a bracket is closed that was not opened")
		}
		return []string{name}, nil
	}
	bounds, after, ok := strings.Cut(rest, "]")
	if !ok {
		return nil, errors.New("a bracket is not closed")
	}
	values, err := steps(bounds)
	if err != nil {
		return nil, err
	}
	tails, err := expand(after)
	if err != nil {
		return nil, err
	}
	if len(values)*len(tails) > maxHosts {
		return nil, fmt.Errorf("it stands for more than %d hosts", maxHosts)
	}
	out := make([]string, 0, len(values)*len(tails))
	for _, s := range values {
		for _, t := range tails {
			out = append(out, before+s+t)
		}
	}
	return out, nil
}

// steps are the values of one range: begin:end or begin:end:step.
func steps(bounds string) ([]string, error) {
	parts := strings.Split(bounds, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, fmt.Errorf("the range [%s] is not begin:end or begin:end:step", bounds)
	}
	begin, end, step := parts[0], parts[1], 1
	if begin == "" {
		begin = "0"
	}
	if end == "" {
		return nil, fmt.Errorf("the range [%s] has no end", bounds)
	}
	if len(parts) == 3 {
		n, err := strconv.Atoi(parts[2])
		if err != nil || n < 1 {
			return nil, fmt.Errorf("the step of the range [%s] is no number above zero", bounds)
		}
		step = n
	}
	if len(begin) == 1 && len(end) == 1 {
		if from, to := strings.Index(letters, begin), strings.Index(letters, end); from >= 0 && to >= 0 {
			if from > to {
				return nil, fmt.Errorf("the range [%s] ends before it begins", bounds)
			}
			var out []string
			for i := from; i <= to; i += step {
				out = append(out, letters[i:i+1])
			}
			return out, nil
		}
	}
	width := 0
	if begin[0] == '0' && len(begin) > 1 {
		if width = len(begin); width != len(end) {
			return nil, fmt.Errorf("begin and end of the range [%s] need the same number of digits", bounds)
		}
	}
	from, err1 := strconv.Atoi(begin)
	to, err2 := strconv.Atoi(end)
	switch {
	case err1 != nil || err2 != nil || from < 0:
		return nil, fmt.Errorf("the range [%s] is neither one of numbers nor one of letters", bounds)
	case from > to:
		return nil, fmt.Errorf("the range [%s] ends before it begins", bounds)
	case (to-from)/step >= maxHosts:
		return nil, fmt.Errorf("the range [%s] stands for more than %d hosts", bounds, maxHosts)
	}
	var out []string
	for i := from; i <= to; i += step {
		out = append(out, fmt.Sprintf("%0*d", width, i))
	}
	return out, nil
}
